package open_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/storage/open"
	"github.com/rondo-rl/rondo/storage/storagetest"
)

func TestOpenDirectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "objects")
	for i, location := range []string{path, "file://" + path} {
		s, err := open.Open(t.Context(), location)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			err = s.Put(t.Context(), "a", []byte("x"))
		} else {
			_, err = s.Get(t.Context(), "a")
		}
		if err != nil {
			t.Errorf("%s: %v", location, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestOpenBucket(t *testing.T) {
	endpoint := storagetest.S3Dev(t)
	t.Setenv("AWS_ACCESS_KEY_ID", storagetest.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", storagetest.SecretKey)
	s, err := open.Open(t.Context(), "s3://made-here/some/prefix?create=true&endpoint="+endpoint)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Put(t.Context(), "a", []byte("x")); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestOpenRefuses(t *testing.T) {
	for location, want := range map[string]string{
		"":                     "no location",
		"ftp://host/dir":       `unknown scheme "ftp"`,
		"file://host/dir":      "want file:///absolute/path",
		"file://":              "want file:///absolute/path",
		"s3://user:pw@bucket/": "with credentials",
	} {
		t.Run(location, func(t *testing.T) {
			s, err := open.Open(t.Context(), location)
			if err == nil || !strings.Contains(err.Error(), want) || s != nil {
				t.Errorf("%q: %v, %v; want %q", location, s, err, want)
			}
		})
	}
}
