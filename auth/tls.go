package auth

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// What TLS needs, relative to the authority's directory.
const (
	tlsDir = "tls"
	caName = "ca.crt"
	// CAFile verifies the server; it is no secret. Each user has a copy.
	CAFile = tlsDir + "/" + caName
	// TLSConfigFile is what the server includes.
	TLSConfigFile = natsDir + "/tls.conf"
	// RoutesConfigFile is what each server of a cluster includes in its cluster block: servers know
	// each other by their certificate.
	RoutesConfigFile = natsDir + "/routes.conf"
	serverCert       = tlsDir + "/server.crt"
	serverKey        = tlsDir + "/server.key"
	caKey            = keysDir + "/ca.key"
)

// Lifetimes of the certificates. The server's is made anew when a third of it is left.
const (
	caLife     = 10 * 365 * 24 * time.Hour
	serverLife = 365 * 24 * time.Hour
)

// serverUsage: a server of a cluster is the client of the others.
var serverUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}

// EnsureTLS makes a certificate authority, and a certificate for servers of these names and
// addresses. What exists is kept, but a certificate that runs out, or lacks a name, is made anew.
func EnsureTLS(dir string, hosts []string, now time.Time) error {
	if err := os.MkdirAll(filepath.Join(dir, tlsDir), 0o755); err != nil {
		return err
	}
	ca, key, err := certificateAuthority(dir, now)
	if err != nil {
		return err
	}
	if err := ensureServer(dir, ca, key, hosts, now); err != nil {
		return err
	}
	// Relative to the file, as nats-server reads paths relative to where it
	// runs: so they are absolute.
	at, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	pair := fmt.Sprintf("  cert_file: %q\n  key_file: %q\n  timeout: 5\n", filepath.Join(at, serverCert),
		filepath.Join(at, serverKey))
	// Verified, both ways: no credentials have to do with routes, and whoever may open one may say
	// anything in any account.
	routes := fmt.Sprintf("tls {\n%s  ca_file: %q\n  verify: true\n}\n", pair, filepath.Join(at, CAFile))
	return errors.Join(writeFile(filepath.Join(dir, TLSConfigFile), []byte("tls {\n"+pair+"}\n"), 0o644),
		writeFile(filepath.Join(dir, RoutesConfigFile), []byte(routes), 0o644))
}

func certificateAuthority(dir string, now time.Time) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	ca, err := readCertificate(filepath.Join(dir, CAFile))
	if err == nil {
		key, err := readKey(filepath.Join(dir, caKey))
		return ca, key, err
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "Rondo"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(caLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	// The key first: a certificate whose key is lost would be kept.
	if err := writeKey(filepath.Join(dir, caKey), key, 0o600); err != nil {
		return nil, nil, err
	}
	if err := sign(filepath.Join(dir, CAFile), template, template, key, key); err != nil {
		return nil, nil, err
	}
	ca, err = readCertificate(filepath.Join(dir, CAFile))
	return ca, key, err
}

func ensureServer(dir string, ca *x509.Certificate, caKey *ecdsa.PrivateKey, hosts []string, now time.Time) error {
	known, err := readCertificate(filepath.Join(dir, serverCert))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil && known.NotAfter.Sub(now) > serverLife/3 && known.CheckSignatureFrom(ca) == nil &&
		slices.Equal(known.ExtKeyUsage, serverUsage) &&
		!slices.ContainsFunc(hosts, func(h string) bool { return known.VerifyHostname(h) != nil }) {
		return nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: hosts[0]}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(serverLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: serverUsage,
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	// The server may be another user than who makes the keys: its group reads the server's key,
	// and nobody the authority's.
	return errors.Join(writeKey(filepath.Join(dir, serverKey), key, 0o640),
		sign(filepath.Join(dir, serverCert), template, ca, key, caKey))
}

func sign(path string, template, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) error {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return err
	}
	template.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	if err != nil {
		return err
	}
	return writeFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644)
}

// giveCA puts the certificate of the authority, where there is one, beside a user's credentials:
// its folder then has all that it needs.
func (a *Authority) giveCA(name string) error {
	text, err := os.ReadFile(filepath.Join(a.dir, CAFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if known, err := os.ReadFile(filepath.Join(a.folder(name), caName)); err == nil && bytes.Equal(known, text) {
		return nil
	}
	return writeFile(filepath.Join(a.folder(name), caName), text, 0o644)
}

func writeKey(path string, key *ecdsa.PrivateKey, mode os.FileMode) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return writeFile(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), mode)
}

func readCertificate(path string) (*x509.Certificate, error) {
	block, err := readPEM(path)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(block)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return certificate, nil
}

func readKey(path string) (*ecdsa.PrivateKey, error) {
	block, err := readPEM(path)
	if err != nil {
		return nil, err
	}
	key, err := x509.ParsePKCS8PrivateKey(block)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	pair, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s holds a key of another kind than Rondo makes", path)
	}
	return pair, nil
}

func readPEM(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%s is not in PEM form", path)
	}
	return block.Bytes, nil
}
