package s3

import (
	"os"
	"path/filepath"
	"testing"
)

// TestUsersOwnKeys: what is tried out with a user's keys is not done with the root
// user's, which lie in files.
func TestUsersOwnKeys(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("root"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_ACCESS_KEY_ID_FILE", file)
	t.Setenv("AWS_SECRET_ACCESS_KEY_FILE", file)
	c, err := ParseURL("s3://bucket?endpoint=http://127.0.0.1:1")
	if err != nil || !c.KeysInFiles {
		t.Fatalf("%+v, %v", c.KeysInFiles, err)
	}
	var u User
	u.User, u.Secret = "u", "s"
	if got, err := newCredentials(c.forUser(u)).GetWithContext(nil); err != nil || got.AccessKeyID != "u" ||
		got.SecretAccessKey != "s" {
		t.Errorf("keys of %q, %v", got.AccessKeyID, err)
	}
}
