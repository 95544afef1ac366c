package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/spf13/pflag"

	"github.com/rondo-rl/rondo/auth"
)

// NATSAccess is how a NATS server is told who asks, and how it is known to be the right
// one. Secrets are in files.
type NATSAccess struct {
	creds     string
	ca        string
	cert, key string
	Monitor   string // base URL of the server's monitoring port
}

// AddFlags adds the flags of the connection to a NATS server.
func (a *NATSAccess) AddFlags(f *pflag.FlagSet) {
	f.StringVar(&a.creds, "nats-creds", "", "file of credentials for the NATS server, as \"rondo auth\" makes them")
	f.StringVar(&a.ca, "nats-ca", "", "file of the certificate authority that signed the NATS server's certificate")
	f.StringVar(&a.cert, "nats-cert", "", "file of a client certificate for the NATS server")
	f.StringVar(&a.key, "nats-key", "", "file of the client certificate's key")
	f.StringVar(&a.Monitor, "nats-monitor", "",
		"URL of the NATS server's monitoring port, which lists the streams that refuse writes, for example http://nats:8222; commas between those of a cluster")
}

// Options are those of a connection.
func (a NATSAccess) Options() ([]nats.Option, error) {
	var options []nats.Option
	if a.creds != "" {
		prefix, err := auth.InboxPrefix(a.creds)
		if err != nil {
			return nil, fmt.Errorf("--nats-creds: %w", err)
		}
		options = append(options, nats.UserCredentials(a.creds), nats.CustomInboxPrefix(prefix))
	}
	if a.ca != "" {
		if _, err := os.Stat(a.ca); err != nil {
			return nil, fmt.Errorf("--nats-ca: %w", err)
		}
		options = append(options, nats.RootCAs(a.ca))
	}
	if (a.cert == "") != (a.key == "") {
		return nil, errors.New("--nats-cert and --nats-key go together: the certificate and its key")
	}
	if a.cert != "" {
		options = append(options, nats.ClientCert(a.cert, a.key))
	}
	return options, nil
}

// TellRefusal logs what the server refuses: without a word, a request that is not allowed looks
// like one that takes for ever.
func TellRefusal(_ *nats.Conn, _ *nats.Subscription, err error) {
	level := slog.LevelWarn
	if errors.Is(err, nats.ErrPermissionViolation) {
		level = slog.LevelError
	}
	Logger(slog.LevelWarn).Log(context.Background(), level, "nats request refused", "error", err)
}

// Redacted is a list of server URLs without their passwords and tokens.
func Redacted(natsURL string) string {
	servers := strings.Split(natsURL, ",")
	for i, server := range servers {
		if at := strings.LastIndex(server, "@"); at >= 0 {
			servers[i] = "…@" + server[at+1:]
		}
	}
	return strings.Join(servers, ",")
}

// RedactedURL is one server's URL without user, password and token, still fit to connect to.
func RedactedURL(natsURL string) string {
	if scheme, rest, ok := strings.Cut(natsURL, "://"); ok {
		return scheme + "://" + rest[strings.LastIndex(rest, "@")+1:]
	}
	return natsURL
}

// WithoutSecrets is an error about a server without what its URL holds of users and passwords:
// net/url repeats what it cannot read.
func WithoutSecrets(natsURL string, err error) error {
	text := err.Error()
	for server := range strings.SplitSeq(natsURL, ",") {
		at := strings.LastIndex(server, "@")
		if at < 0 {
			continue
		}
		user := server[:at]
		if _, rest, ok := strings.Cut(user, "://"); ok {
			user = rest
		}
		name, password, _ := strings.Cut(user, ":")
		for _, secret := range []string{user, url.QueryEscape(user), password, name} {
			if len(secret) > 2 && strings.Contains(text, secret) {
				text = strings.ReplaceAll(text, secret, "…")
			}
		}
	}
	if text == err.Error() {
		return err
	}
	return &redactedError{text, err}
}

// redactedError is an error whose text holds no secret any more.
type redactedError struct {
	text string
	err  error
}

func (e *redactedError) Error() string { return e.text }
func (e *redactedError) Unwrap() error { return e.err }
