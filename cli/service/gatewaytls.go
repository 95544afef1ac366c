package service

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"
)

// certificateEvery is how often the files of a certificate are looked at, when somebody connects.
const certificateEvery = time.Second

// certificate is one of files that are replaced while the gateway runs.
type certificate struct {
	cert, key string
	logger    *slog.Logger

	mu     sync.Mutex
	loaded *tls.Certificate
	files  string // what they were like when it was loaded
	failed string // why they could not be loaded the last time, which is logged once
	looked time.Time
}

// certificate reads the files of --gateway-tls-cert and --gateway-tls-key; nil without any.
func (s *gatewaySettings) certificate(logger *slog.Logger) (*certificate, error) {
	if s.cert == "" && s.key == "" {
		return nil, nil
	}
	if s.cert == "" || s.key == "" {
		return nil, errors.New("give both --gateway-tls-cert and --gateway-tls-key")
	}
	c := &certificate{cert: s.cert, key: s.key, logger: logger}
	if err := c.load(); err != nil {
		return nil, fmt.Errorf("--gateway-tls-cert %s, --gateway-tls-key %s: %w", s.cert, s.key, err)
	}
	return c, nil
}

// load reads the files when they are others than before.
func (c *certificate) load() error {
	files, err := c.look()
	if err != nil || files == c.files {
		return err
	}
	loaded, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return err
	}
	c.loaded, c.files = &loaded, files
	return nil
}

// look says what tells the files from later ones.
func (c *certificate) look() (files string, err error) {
	for _, name := range []string{c.cert, c.key} {
		info, err := os.Stat(name)
		if err != nil {
			return "", err
		}
		files += fmt.Sprintf("%d %d ", info.ModTime().UnixNano(), info.Size())
	}
	return files, nil
}

// now is the certificate for who connects. Files that cannot be read, or are half replaced, leave
// the one that was read before.
func (c *certificate) now(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.looked) < certificateEvery {
		return c.loaded, nil
	}
	c.looked = time.Now()
	before := c.files
	if err := c.load(); err != nil {
		if c.failed != err.Error() {
			c.logger.Error("gateway certificate not reloaded", "cert", c.cert, "key", c.key, "error", err)
		}
		c.failed = err.Error()
		return c.loaded, nil
	}
	c.failed = ""
	if c.files != before {
		c.logger.Info("gateway certificate reloaded", "cert", c.cert)
	}
	return c.loaded, nil
}

// listener speaks TLS with who connects. HTTP/2 is left out: each of its streams has a
// buffer that no budget counts.
func (c *certificate) listener(plain net.Listener) net.Listener {
	return tls.NewListener(plain, &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.now,
		NextProtos: []string{"http/1.1"}})
}
