// Command pause is the first process of every pod of a container node: it holds the pod's namespaces, and waits for
// processes that lost their parent where the pod's containers share their process numbers.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for received := range signals {
		if received != syscall.SIGCHLD {
			return
		}
		for {
			if ended, _ := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); ended <= 0 {
				break
			}
		}
	}
}
