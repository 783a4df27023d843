"""What an expert writes by hand with torch alone, for the same model and the same step."""
