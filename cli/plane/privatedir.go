package plane

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/rondo-rl/rondo/storage/durable"
)

// PrivateDir makes a directory that its owner alone can enter, or takes other users' rights to an
// existing one away. The directory of a plane holds the token of its log: whoever can read it can
// open runs. A directory or a link of another user is an error.
func PrivateDir(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := ownDir(dir); err != nil {
		return err
	}
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm()&0o077 == 0 {
		return err
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return fmt.Errorf("keep other users out of %s: %w", dir, err)
	}
	return nil
}

// ownDir checks that a directory, and the link that leads to it, are this user's. What
// is not there is nobody's.
func ownDir(dir string) error {
	for _, look := range []func(string) (fs.FileInfo, error){os.Lstat, os.Stat} {
		info, err := look(dir)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if uid := ownerOf(info); uid != os.Geteuid() {
			return fmt.Errorf("%s belongs to another user (uid %d, this is uid %d), who could read or replace the plane's token: name a directory of your own by --dir, or "+
				"the other user's plane by --nats and --store",
				dir, uid, os.Geteuid())
		}
		if info.Mode()&fs.ModeSymlink == 0 && !info.IsDir() {
			return fmt.Errorf("%s is not a directory: name a directory with --dir", dir)
		}
	}
	return nil
}

// ownerOf is the user id of a file's owner, -1 where it is unknown.
func ownerOf(info fs.FileInfo) int {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(stat.Uid)
	}
	return -1
}

// ShortestToken is how many characters a token has at least, so that nobody guesses it.
const ShortestToken = 32

// newToken makes a secret of 256 bits, in letters and digits that need no escaping anywhere.
func newToken() string {
	var secret [32]byte
	rand.Read(secret[:]) // it never fails
	return hex.EncodeToString(secret[:])
}

// LastingToken is the secret in a file that its owner alone can read. A file that is missing is
// made, with a new secret.
func LastingToken(file string) (string, error) {
	info, err := os.Lstat(file)
	if errors.Is(err, fs.ErrNotExist) {
		token := newToken()
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return "", err
		}
		return token, writePrivate(file, []byte(token+"\n"))
	}
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || ownerOf(info) != os.Geteuid() || info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("%s is not a file that you alone can read: remove it, and a new one is made", file)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(data))
	if len(token) < ShortestToken {
		return "", fmt.Errorf("%s holds no key of at least %d characters: remove it, and a new one is made", file,
			ShortestToken)
	}
	return token, nil
}

// writePrivate replaces a file by one that its owner alone can read, whatever the rights of the old
// one were. A power cut leaves the old file or the new one, and after the return the new one.
func writePrivate(file string, data []byte) error {
	temp, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+"-") // mode 0600
	if err != nil {
		return err
	}
	_, err = temp.Write(data)
	err = errors.Join(err, temp.Sync(), temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), file)
	}
	if err != nil {
		os.Remove(temp.Name())
		return err
	}
	return durable.Sync(filepath.Dir(file))
}
