package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/events/topology"
)

// StoreKeys are a user's keys for the object store.
type StoreKeys struct {
	Access string
	Secret string
}

// Objects are what a user may do in the object store.
func (u User) Objects() (topology.ObjectRights, error) {
	if u.Outsider != nil {
		return topology.OutsiderObjects(*u.Outsider)
	}
	return topology.ProcessObjects(u.Services...)
}

// Expired says that a user has been revoked, or that its time is over.
func (u User) Expired(now time.Time) bool {
	return !u.Revoked.IsZero() || !u.Expires.IsZero() && now.After(u.Expires)
}

// StoreAccess is a user's access key in an object store: what it was when it was made,
// else the beginning of its name and a digest of the name and the operator's key, as a
// server's users are those of all planes. It is short: a bucket's policy names it many
// times, and has to fit into 4 KB.
func (a *Authority) StoreAccess(name string) (string, error) {
	text, err := os.ReadFile(a.storeAccess(name))
	if access := strings.TrimSpace(string(text)); err == nil && access != "" {
		return access, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	operator, err := a.operator.PublicKey()
	if err != nil {
		return "", err
	}
	digest := sha256.Sum256([]byte(operator + "/" + name))
	return name[:min(3, len(name))] + base32.StdEncoding.EncodeToString(digest[:])[:6], nil
}

// StoreEnv is the file of a user's store keys for a process's environment: AWS_ACCESS_KEY_ID
// and AWS_SECRET_ACCESS_KEY.
func (a *Authority) StoreEnv(name string) string { return filepath.Join(a.folder(name), "s3.env") }

// storeSecret and storeAccess are the files with the parts alone, for AWS_SECRET_ACCESS_KEY_FILE
// and AWS_ACCESS_KEY_ID_FILE.
func (a *Authority) storeSecret(name string) string {
	return filepath.Join(a.folder(name), "s3.secret")
}

func (a *Authority) storeAccess(name string) string {
	return filepath.Join(a.folder(name), "s3.access")
}

// StoreKeys reads a user's keys for the object store, or makes them.
func (a *Authority) StoreKeys(name string) (keys StoreKeys, made bool, err error) {
	if _, err := a.User(name); err != nil {
		return StoreKeys{}, false, err
	}
	if keys.Access, err = a.StoreAccess(name); err != nil {
		return StoreKeys{}, false, err
	}
	text, err := os.ReadFile(a.storeSecret(name))
	keys.Secret = strings.TrimSpace(string(text))
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && keys.Secret == "":
		keys.Secret, made = rand.Text(), true
		if err := writeFile(a.storeSecret(name), []byte(keys.Secret+"\n"), 0o600); err != nil {
			return StoreKeys{}, false, err
		}
	case err != nil:
		return StoreKeys{}, false, err
	}
	env := fmt.Sprintf("AWS_ACCESS_KEY_ID=%s\nAWS_SECRET_ACCESS_KEY=%s\n", keys.Access, keys.Secret)
	return keys, made, errors.Join(writeFile(a.storeAccess(name), []byte(keys.Access+"\n"), 0o600),
		writeFile(a.StoreEnv(name), []byte(env), 0o600))
}

// What EnsureRootKeys makes, relative to the authority's directory.
const (
	rootAccess = "s3/root.access"
	rootSecret = "s3/root.secret"
)

// EnsureRootKeys makes the root keys of an object store's server, which makes the users' keys known
// there: each a file that the server's group may read. What exists is kept.
func (a *Authority) EnsureRootKeys() error {
	if err := os.MkdirAll(filepath.Join(a.dir, filepath.Dir(rootSecret)), 0o755); err != nil {
		return err
	}
	for path, key := range map[string]string{rootAccess: "root", rootSecret: rand.Text()} {
		path = filepath.Join(a.dir, path)
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			if err != nil {
				return err
			}
			continue
		}
		if err := writeFile(path, []byte(key+"\n"), 0o640); err != nil {
			return err
		}
	}
	return nil
}

// HasStoreKeys says whether a user has keys for an object store.
func (a *Authority) HasStoreKeys(name string) bool {
	_, err := os.Stat(a.storeSecret(name))
	return err == nil
}

// DropStoreKeys forgets a user's secret for the object store; the server knows it until it is told.
func (a *Authority) DropStoreKeys(name string) error {
	var failed []error
	for _, path := range []string{a.StoreEnv(name), a.storeSecret(name)} {
		if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// StoreUsers are the users who shall have rights in an object store, and those who shall have none
// any more, in the order of their names.
func (a *Authority) StoreUsers(now time.Time) (here, gone []User, err error) {
	users, err := a.Users()
	if err != nil {
		return nil, nil, err
	}
	here = slices.DeleteFunc(slices.Clone(users), func(u User) bool { return u.Expired(now) })
	gone = slices.DeleteFunc(users, func(u User) bool { return !u.Expired(now) })
	return here, gone, nil
}
