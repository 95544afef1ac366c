package storage_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/storage"
)

func TestValidateKey(t *testing.T) {
	valid := []string{"a", "blobs/sha256/ab/abcd", "runs/r-1_2.3/x@y=z+w", strings.Repeat("a", 200),
		strings.Repeat("abc/", 127) + "abc", "a.", "a..b"}
	for _, key := range valid {
		if err := storage.ValidateKey(key); err != nil {
			t.Errorf("%q: %v", key, err)
		}
	}
	invalid := []string{"", "/", "a/", "/a", "a//b", "..", "a/..", "./a", ".a", "a/.b", "a b", "ü", "a\n", `a\b`,
		strings.Repeat("a", 201), strings.Repeat("abcd/", 102) + "abc"}
	for _, key := range invalid {
		if err := storage.ValidateKey(key); !errors.Is(err, storage.ErrKey) {
			t.Errorf("%q: %v, want an ErrKey", key, err)
		}
	}
}

func FuzzValidateKey(f *testing.F) {
	for _, key := range []string{"a/b", "../a", "", "\x00", strings.Repeat("a", 600), "a/..../b"} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		if storage.ValidateKey(key) != nil {
			return
		}
		if len(key) == 0 || len(key) > storage.MaxKey || strings.Contains("/"+key+"/", "/../") ||
			strings.Contains(key, "//") || strings.HasPrefix(key, "/") {
			t.Errorf("%q passes", key)
		}
		if err := storage.ValidatePrefix(key); err != nil {
			t.Errorf("%q is a key and no prefix: %v", key, err)
		}
	})
}
