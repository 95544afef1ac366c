// Package auth makes the keys and credentials with which a NATS server knows who is who: an
// operator, an account for the plane, one for outsiders, and a user for each service of the
// topology table with that service's permissions.
package auth

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/rondo-rl/rondo/events/topology"
)

// Names of the accounts. Outsiders have one of their own, without storage: what they may ask of the
// plane's account crosses over one by one, and answers come back to who asked.
const (
	planeAccount   = "RONDO"
	outsideAccount = "RONDO_OUTSIDE"
	systemAccount  = "SYS"
)

// Authority is a directory of keys: whoever has it can make users. It belongs on the operator's
// machine, not beside the services.
type Authority struct {
	dir      string
	operator nkeys.KeyPair
	accounts map[string]*account
}

// account is an account and what the operator says of it.
type account struct {
	key    nkeys.KeyPair
	claims *jwt.AccountClaims
}

// Names of what is in an authority's directory.
const (
	keysDir = "keys" // seeds: secret
	jwtDir  = "jwt"  // what the operator says of accounts: public
	natsDir = "nats" // for the server
	userDir = "users"
	// ConfigFile is what the server includes, relative to the authority's directory.
	ConfigFile = natsDir + "/auth.conf"
)

// ErrNoAuthority means that the directory holds no keys.
var ErrNoAuthority = errors.New("no keys here")

// Init makes an authority in a directory, or opens the one that is there: what exists is kept.
func Init(dir string) (*Authority, error) {
	for _, sub := range []string{keysDir, jwtDir, natsDir, userDir} {
		mode := os.FileMode(0o755)
		if sub == keysDir {
			mode = 0o700
		}
		if err := os.MkdirAll(filepath.Join(dir, sub), mode); err != nil {
			return nil, err
		}
	}
	a := &Authority{dir: dir, accounts: map[string]*account{}}
	var err error
	if a.operator, err = a.key("operator", nkeys.CreateOperator); err != nil {
		return nil, err
	}
	for _, name := range []string{systemAccount, planeAccount, outsideAccount} {
		acc := &account{}
		if acc.key, err = a.key(name, nkeys.CreateAccount); err != nil {
			return nil, err
		}
		a.accounts[name] = acc
	}
	for name, acc := range a.accounts {
		if acc.claims, err = a.accountClaims(name, acc); err != nil {
			return nil, err
		}
	}
	signer, err := a.key(outsideAccount+"-signing", nkeys.CreateAccount)
	if err != nil {
		return nil, err
	}
	id, err := signer.PublicKey()
	if err != nil {
		return nil, err
	}
	if keys := a.accounts[outsideAccount].claims.SigningKeys; !keys.Contains(id) {
		keys.Add(id)
	}
	return a, a.writeServer()
}

// Open opens an authority.
func Open(dir string) (*Authority, error) {
	if _, err := os.Stat(filepath.Join(dir, keysDir, "operator.nk")); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w: run `rondo auth init --out %s` first", dir, ErrNoAuthority, dir)
	}
	return Init(dir)
}

// key reads a key pair, or makes it.
func (a *Authority) key(name string, create func() (nkeys.KeyPair, error)) (nkeys.KeyPair, error) {
	path := filepath.Join(a.dir, keysDir, name+".nk")
	seed, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		pair, err := create()
		if err != nil {
			return nil, err
		}
		if seed, err = pair.Seed(); err != nil {
			return nil, err
		}
		return pair, writeFile(path, seed, 0o600)
	}
	if err != nil {
		return nil, err
	}
	pair, err := nkeys.FromSeed([]byte(strings.TrimSpace(string(seed))))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err) // errors of nkeys repeat nothing of a seed
	}
	return pair, nil
}

// accountClaims are what the operator says of an account. Revocations and the scopes of users are
// kept from what was said before.
func (a *Authority) accountClaims(name string, acc *account) (*jwt.AccountClaims, error) {
	id, err := acc.key.PublicKey()
	if err != nil {
		return nil, err
	}
	claims := jwt.NewAccountClaims(id)
	claims.Name = name
	switch name {
	case planeAccount:
		// The server's own max_file_store and max_memory_store bound it.
		claims.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: jwt.NoLimit, DiskStorage: jwt.NoLimit,
			Streams: jwt.NoLimit, Consumer: jwt.NoLimit}
		for _, s := range topology.OutsideServices() {
			claims.Exports.Add(&jwt.Export{Name: s, Subject: jwt.Subject(s), Type: jwt.Service})
		}
		for _, s := range topology.OutsideStreams() {
			claims.Exports.Add(&jwt.Export{Name: s, Subject: jwt.Subject(s), Type: jwt.Stream})
		}
		outside, err := a.accounts[outsideAccount].key.PublicKey()
		if err != nil {
			return nil, err
		}
		for _, s := range topology.OutsideSays() {
			claims.Imports.Add(&jwt.Import{Name: s, Subject: jwt.Subject(s), Account: outside, Type: jwt.Stream})
		}
	case outsideAccount:
		plane, err := a.accounts[planeAccount].key.PublicKey()
		if err != nil {
			return nil, err
		}
		for _, s := range topology.OutsideSays() {
			claims.Exports.Add(&jwt.Export{Name: s, Subject: jwt.Subject(s), Type: jwt.Stream})
		}
		for _, s := range topology.OutsideServices() {
			claims.Imports.Add(&jwt.Import{Name: s, Subject: jwt.Subject(s), Account: plane, Type: jwt.Service})
		}
		for _, s := range topology.OutsideStreams() {
			claims.Imports.Add(&jwt.Import{Name: s, Subject: jwt.Subject(s), Account: plane, Type: jwt.Stream})
		}
	}
	old, err := os.ReadFile(a.accountFile(name))
	if errors.Is(err, fs.ErrNotExist) {
		return claims, nil
	}
	if err != nil {
		return nil, err
	}
	before, err := jwt.DecodeAccountClaims(string(old))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a.accountFile(name), err)
	}
	claims.Revocations, claims.SigningKeys = before.Revocations, before.SigningKeys
	return claims, nil
}

func (a *Authority) accountFile(name string) string {
	return filepath.Join(a.dir, jwtDir, name+".jwt")
}

// writeServer writes the accounts, and what the server includes. The latter holds no secret.
func (a *Authority) writeServer() error {
	system, err := a.accounts[systemAccount].key.PublicKey()
	if err != nil {
		return err
	}
	id, err := a.operator.PublicKey()
	if err != nil {
		return err
	}
	operator := jwt.NewOperatorClaims(id)
	operator.Name, operator.SystemAccount = "rondo", system
	token, err := a.say("operator", operator)
	if err != nil {
		return err
	}
	var conf strings.Builder
	fmt.Fprintf(&conf, "# Who may do what: `rondo auth` writes this file. Include it in the server's configuration, and reload the server when it changes.\n")
	fmt.Fprintf(&conf, "operator: %s\nsystem_account: %s\nresolver: MEMORY\nresolver_preload: {\n", token, system)
	for _, name := range []string{systemAccount, planeAccount, outsideAccount} {
		acc := a.accounts[name]
		token, err := a.say(name, acc.claims)
		if err != nil {
			return fmt.Errorf("account %s: %w", name, err)
		}
		fmt.Fprintf(&conf, "  # %s\n  %s: %s\n", name, acc.claims.Subject, token)
	}
	conf.WriteString("}\n")
	return writeFile(filepath.Join(a.dir, ConfigFile), []byte(conf.String()), 0o644)
}

// say signs what the operator says, unless it has said the same before: a running server takes no
// other operator, and a signature has a time.
func (a *Authority) say(name string, claims jwt.Claims) (token string, err error) {
	if token, err = claims.Encode(a.operator); err != nil {
		return "", err
	}
	said, err := os.ReadFile(a.accountFile(name))
	if err == nil && sameContent(string(said), token) {
		return string(said), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	return token, writeFile(a.accountFile(name), []byte(token), 0o644)
}

// sameContent compares what two tokens say of whom, apart from when.
func sameContent(a, b string) bool {
	before, err := jwt.Decode(a)
	if err != nil {
		return false
	}
	after, err := jwt.Decode(b)
	if err != nil || before.Claims().Subject != after.Claims().Subject || before.Claims().Name != after.Claims().Name {
		return false
	}
	one, err := json.Marshal(before.Payload())
	if err != nil {
		return false
	}
	other, err := json.Marshal(after.Payload())
	return err == nil && bytes.Equal(one, other)
}

// writeFile writes a file whole or not at all.
func writeFile(path string, data []byte, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*") // with mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	if err := errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
