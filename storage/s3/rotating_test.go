package s3

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// TestMissingKeyFile: while a file of the keys is missing, as in the middle of a
// rotation, the last keys are used.
func TestMissingKeyFile(t *testing.T) {
	dir := t.TempDir()
	access, secret := filepath.Join(dir, "access"), filepath.Join(dir, "secret")
	write := func(name, key string) {
		if err := os.WriteFile(name, []byte(key+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": "", "AWS_ACCESS_KEY_ID_FILE": access,
		"AWS_SECRET_ACCESS_KEY": "", "AWS_SECRET_ACCESS_KEY_FILE": secret} {
		t.Setenv(name, value)
	}
	synctest.Test(t, func(t *testing.T) {
		keys := newCredentials(Config{KeysInFiles: true, AccessKey: "first", SecretKey: "first"})
		want := func(key string) {
			t.Helper()
			time.Sleep(keysEvery + time.Millisecond)
			got, err := keys.GetWithContext(nil)
			if err != nil || got.AccessKeyID != key || got.SecretAccessKey != key {
				t.Errorf("the keys are %+v, want %q: %v", got, key, err)
			}
		}
		write(access, "second")
		write(secret, "second")
		want("second")
		if err := os.Remove(secret); err != nil {
			t.Fatal(err)
		}
		write(access, "third")
		want("second")
		write(secret, "third")
		want("third")
	})
}
