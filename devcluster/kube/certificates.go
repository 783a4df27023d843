package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// The certificates of one cluster, made here because neither openssl nor a Python package for it
// can be counted on. All keys are ECDSA P-256, which is made in microseconds.
//
//	ca.crt, ca.key                the cluster's own authority
//	server.crt, server.key        served by the API server, the controllers and the scheduler
//	node.crt, node.key            served by nodes at their log endpoint
//	api-client.crt, .key          shown by the API server to nodes: nobody else may read logs there.
//	                              In system:masters, as kubelets ask the API server whether its owner may
//	service-account.key           signs the tokens of service accounts
const validFor = 10 * 365 * 24 * time.Hour

type authority struct {
	directory   string
	certificate *x509.Certificate
	key         crypto.Signer
}

// runCertificates is `certificates DIRECTORY SERVICE-IP [ADDRESS...]`: the address that the Service
// `kubernetes` will get, and those of nodes that are not on loopback.
func runCertificates() int {
	if len(os.Args) < 3 {
		return certificatesUsage()
	}
	addresses := make([]net.IP, 0, len(os.Args))
	for _, text := range os.Args[2:] {
		address := net.ParseIP(text)
		if address == nil {
			return certificatesUsage()
		}
		addresses = append(addresses, address)
	}
	if err := writeCertificates(os.Args[1], addresses[0], addresses[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "certificates:", err)
		return 1
	}
	return 0
}

func certificatesUsage() int {
	fmt.Fprintln(os.Stderr, "usage: certificates DIRECTORY SERVICE-IP [ADDRESS...]")
	return 2
}

func writeCertificates(directory string, service net.IP, others []net.IP) error {
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return err
	}
	ca, err := newAuthority(directory)
	if err != nil {
		return err
	}
	own := append([]net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, others...)
	server := leaf("kube-apiserver", x509.ExtKeyUsageServerAuth)
	server.IPAddresses = append([]net.IP{service}, own...)
	server.DNSNames = []string{
		"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
	}
	node := leaf("devcluster-node", x509.ExtKeyUsageServerAuth)
	node.IPAddresses, node.DNSNames = own, []string{"localhost"}
	client := leaf("kube-apiserver-client", x509.ExtKeyUsageClientAuth)
	client.Subject.Organization = []string{"system:masters"}
	for name, template := range map[string]*x509.Certificate{"server": server, "node": node, "api-client": client} {
		if err := ca.issue(name, template); err != nil {
			return err
		}
	}
	tokens, err := newKey()
	if err != nil {
		return err
	}
	return writeKey(filepath.Join(directory, "service-account.key"), tokens)
}

func newAuthority(directory string) (*authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	template := leaf("devcluster-ca")
	template.IsCA = true
	template.KeyUsage |= x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	ca := &authority{directory: directory, certificate: template, key: key}
	return ca, ca.write("ca", template, key)
}

func (ca *authority) issue(name string, template *x509.Certificate) error {
	key, err := newKey()
	if err != nil {
		return err
	}
	return ca.write(name, template, key)
}

func (ca *authority) write(name string, template *x509.Certificate, key crypto.Signer) error {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return err
	}
	template.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, template, ca.certificate, key.Public(), ca.key)
	if err != nil {
		return err
	}
	path := filepath.Join(ca.directory, name)
	if err := writePEM(path+".crt", "CERTIFICATE", der, 0o644); err != nil {
		return err
	}
	return writeKey(path+".key", key)
}

func leaf(name string, usages ...x509.ExtKeyUsage) *x509.Certificate {
	return &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             time.Now().Add(-time.Hour), // a clock that is set back must not end the cluster
		NotAfter:              time.Now().Add(validFor),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           usages,
		BasicConstraintsValid: true,
	}
}

func newKey() (*ecdsa.PrivateKey, error) {
	return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
}

func writeKey(path string, key crypto.Signer) error {
	der, err := x509.MarshalECPrivateKey(key.(*ecdsa.PrivateKey))
	if err != nil {
		return err
	}
	return writePEM(path, "EC PRIVATE KEY", der, 0o600)
}

func writePEM(path, kind string, der []byte, mode os.FileMode) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), mode)
}
