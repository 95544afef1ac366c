package s3_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/storage/s3"
)

func TestParseURL(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_SESSION_TOKEN", "")
	t.Setenv("AWS_REGION", "eu-central-1")
	base := s3.Config{Bucket: "bucket", Region: "eu-central-1", AccessKey: "id", SecretKey: "secret"}
	with := func(change func(*s3.Config)) s3.Config {
		c := base
		change(&c)
		return c
	}
	for text, want := range map[string]s3.Config{
		"s3://bucket":      base,
		"s3://bucket/":     base,
		"s3://bucket/a/b/": with(func(c *s3.Config) { c.Prefix = "a/b" }),
		"s3://bucket?endpoint=http://127.0.0.1:7070&region=x&create=true": with(func(c *s3.Config) {
			c.Endpoint, c.Region, c.CreateBucket = "http://127.0.0.1:7070", "x", true
		}),
	} {
		t.Run(text, func(t *testing.T) {
			if got, err := s3.ParseURL(text); err != nil || got != want {
				t.Errorf("%s: %+v, %v; want %+v", text, got, err, want)
			}
		})
	}
	for text, want := range map[string]string{
		"http://bucket":                 "not a URL of the form",
		"s3://key:hidden@bucket":        "with credentials",
		"s3://key:hidden@bucket:x/":     "not a URL of the form",
		"s3://bucket?endpont=hidden":    `unknown parameter "endpont"`,
		"s3://bucket?create=perhaps":    "want true or false",
		"s3://bucket?endpoint=a;b%zz=c": "malformed query",
	} {
		t.Run(text, func(t *testing.T) {
			_, err := s3.ParseURL(text)
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hidden") {
				t.Errorf("%s: %v, want %q and nothing hidden", text, err, want)
			}
		})
	}
}

func TestCredentialsFromFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("from-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_ACCESS_KEY_ID_FILE", file) // the plain variable counts more
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY_FILE", file)
	if c, err := s3.ParseURL("s3://bucket"); err != nil || c.AccessKey != "id" || c.SecretKey != "from-file" {
		t.Errorf("%+v, %v", c, err)
	}
	t.Setenv("AWS_SECRET_ACCESS_KEY_FILE", file+"-missing")
	if _, err := s3.ParseURL("s3://bucket"); err == nil ||
		!strings.Contains(err.Error(), "AWS_SECRET_ACCESS_KEY_FILE") {
		t.Errorf("a missing file: %v", err)
	}
}

func TestOpenRefusesABadConfiguration(t *testing.T) {
	good := s3.Config{Bucket: "bucket", AccessKey: "id", SecretKey: "secret", Endpoint: "http://127.0.0.1:1"}
	for want, change := range map[string]func(*s3.Config){
		"at least 3 characters": func(c *s3.Config) { c.Bucket = "ab" },
		"AWS_ACCESS_KEY_ID":     func(c *s3.Config) { c.AccessKey = "" },
		"invalid key":           func(c *s3.Config) { c.Prefix = "../up" },
		"not of the form":       func(c *s3.Config) { c.Endpoint = "127.0.0.1:7070" },
		"the endpoint is not":   func(c *s3.Config) { c.Endpoint = "http://user:hidden@host" },
	} {
		t.Run(want, func(t *testing.T) {
			c := good
			change(&c)
			if _, err := s3.Open(t.Context(), c); err == nil || !strings.Contains(err.Error(), want) ||
				strings.Contains(err.Error(), "hidden") {
				t.Errorf("error %v, want %q", err, want)
			}
		})
	}
}
