package service

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// pair writes a certificate with a serial number, and its key.
func pair(t *testing.T, cert, key string, serial int64) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der},
		key: {Type: "EC PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestGatewayCertificate: a certificate is served, and served anew when its files change; files
// that are none change nothing, and are told once.
func TestGatewayCertificate(t *testing.T) {
	dir := t.TempDir()
	s := gatewaySettings{cert: filepath.Join(dir, "tls.crt"), key: filepath.Join(dir, "tls.key")}
	if _, err := (&gatewaySettings{cert: s.cert}).certificate(nil); err == nil {
		t.Error("a certificate without a key is taken")
	}
	if _, err := s.certificate(nil); err == nil || !strings.Contains(err.Error(), s.cert) {
		t.Errorf("files that are not there: %v", err)
	}
	pair(t, s.cert, s.key, 1)
	var log bytes.Buffer
	c, err := s.certificate(slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go serveHTTP(t.Context(), c.listener(plain), http.NotFoundHandler())
	serial := func() int64 {
		t.Helper()
		conn, err := tls.Dial("tcp", plain.Addr().String(),
			&tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		state := conn.ConnectionState()
		if state.NegotiatedProtocol != "http/1.1" {
			t.Errorf("it speaks %q", state.NegotiatedProtocol)
		}
		return state.PeerCertificates[0].SerialNumber.Int64()
	}
	later := func() { // the files are looked at again
		c.mu.Lock()
		defer c.mu.Unlock()
		c.looked = time.Time{}
	}
	if got := serial(); got != 1 {
		t.Errorf("certificate %d is served", got)
	}
	if err := os.WriteFile(s.key, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		later()
		if got := serial(); got != 1 {
			t.Errorf("with a broken key certificate %d is served", got)
		}
	}
	pair(t, s.cert, s.key, 2)
	later()
	if got := serial(); got != 2 {
		t.Errorf("after the change certificate %d is served", got)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := strings.Count(log.String(), "not reloaded"); n != 1 ||
		!strings.Contains(log.String(), "certificate reloaded") {
		t.Errorf("the log has %d complaints:\n%s", n, log.String())
	}
}
