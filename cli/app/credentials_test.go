package app

import (
	"bytes"
	"encoding/base64"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestConcealedCredentials: keys of the environment and of its files are in no line of the log and
// no error of the program, however they are spelt.
func TestConcealedCredentials(t *testing.T) {
	const key, secret, seed = "sk-of-the-endpoint-1", "secret/of+the=store-2",
		"SUAOFTHELOGWHICHISLONGANDHASNOSPACESINITATALL3"
	dir := t.TempDir()
	file, creds := filepath.Join(dir, "secret"), filepath.Join(dir, "nats.creds")
	if err := errors.Join(os.WriteFile(file, []byte(secret+"\n"), 0o600),
		os.WriteFile(creds, []byte("-----BEGIN USER NKEY SEED-----\n"+seed+"\n------END USER NKEY SEED------\n"),
			0o600)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("RONDO_ENDPOINT_API_KEY", key)
	t.Setenv("AWS_SECRET_ACCESS_KEY_FILE", file)
	concealCredentials(creds)
	text := "refused " + base64.StdEncoding.EncodeToString([]byte("user:"+key)) + " and " + secret + " and " +
		strings.ToLower(seed) + seed + " by BEGIN USER NKEY SEED"
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: clean}))
	log.Warn("server refused: "+text, "error", errors.New(text), "text", text)
	PrintError(&out, errors.New(text), false)
	for _, hidden := range []string{key, secret, seed, "c2stb2YtdGhlLWVuZHBvaW50",
		base64.RawStdEncoding.EncodeToString([]byte(key))[2:20]} {
		if strings.Contains(out.String(), hidden) {
			t.Errorf("%q is in\n%s", hidden, &out)
		}
	}
	if !strings.Contains(out.String(), "BEGIN USER NKEY SEED") || !strings.Contains(out.String(), "refused") {
		t.Errorf("more is gone than the keys:\n%s", &out)
	}
}
