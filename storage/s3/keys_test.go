package s3_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/storage/s3"
)

// A store that is open when its keys are rotated goes on with the new ones.
func TestRotatedKeys(t *testing.T) {
	dir := t.TempDir()
	access, secret := filepath.Join(dir, "access"), filepath.Join(dir, "secret")
	write := func(key string) {
		for _, name := range []string{access, secret} {
			if err := os.WriteFile(name, []byte(key+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	write("first")
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": "", "AWS_ACCESS_KEY_ID_FILE": access,
		"AWS_SECRET_ACCESS_KEY": "", "AWS_SECRET_ACCESS_KEY_FILE": secret} {
		t.Setenv(name, value)
	}
	var valid atomic.Value
	valid.Store("first")
	endpoint := front(t, memoryServer(t), func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if !strings.Contains(r.Header.Get("Authorization"), "Credential="+valid.Load().(string)+"/") {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
	c, err := s3.ParseURL("s3://rondo/keys?create=true&endpoint=" + endpoint)
	if err != nil {
		t.Fatal(err)
	}
	store := open(t, c)
	put := func() error { return store.Put(t.Context(), "a/b", []byte("c")) }
	if err := put(); err != nil {
		t.Fatal(err)
	}
	valid.Store("second")
	if put() == nil {
		t.Fatal("the server takes the old key")
	}
	write("second")
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		err := put()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}
