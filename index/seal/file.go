package seal

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// ReadKey reads the file of a key: 64 hexadecimal digits. What is wrong with it is told without
// a word of what it holds.
func ReadKey(name string) (Key, error) {
	f, err := os.Open(name)
	if err != nil {
		return Key{}, fmt.Errorf("read the key of an index: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 1024))
	if err != nil {
		return Key{}, fmt.Errorf("read the key of an index: %w", err)
	}
	var key Key
	digits := strings.TrimSpace(string(text))
	if len(digits) != 2*len(key) {
		return Key{}, fmt.Errorf("the key in %s has %d characters (want %d hexadecimal digits)", name,
			len(digits), 2*len(key))
	}
	if _, err := hex.Decode(key[:], []byte(digits)); err != nil {
		return Key{}, fmt.Errorf("the key in %s is not all hexadecimal digits", name)
	}
	return key, nil
}

// EnsureKey reads the file of a key, or makes one with a new key, for its owner's eyes only. Two
// that make it at once get the same.
func EnsureKey(name string) (key Key, made bool, err error) {
	key, err = ReadKey(name)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, false, err
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return Key{}, false, err
	}
	if _, err := rand.Read(key[:]); err != nil {
		return Key{}, false, err
	}
	temporary, err := os.CreateTemp(filepath.Dir(name), ".key-*") // its mode is 0600
	if err != nil {
		return Key{}, false, err
	}
	defer os.Remove(temporary.Name())
	_, err = fmt.Fprintln(temporary, hex.EncodeToString(key[:]))
	// A key that a power cut took would take the index with it.
	if err = errors.Join(err, temporary.Sync(), temporary.Close()); err != nil {
		return Key{}, false, fmt.Errorf("write the key of an index: %w", err)
	}
	err = os.Link(temporary.Name(), name) // it does not replace
	if errors.Is(err, fs.ErrExist) {
		key, err = ReadKey(name)
		return key, false, err
	}
	return key, err == nil, err
}
