package seal_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rondo-rl/rondo/index/seal"
)

func TestEnsureKey(t *testing.T) {
	name := filepath.Join(t.TempDir(), "keys", "code.key")
	if _, err := seal.ReadKey(name); err == nil {
		t.Error("a key that is not there was read")
	}
	keys := make([]seal.Key, 8)
	var group sync.WaitGroup
	for i := range keys {
		group.Go(func() {
			var err error
			if keys[i], _, err = seal.EnsureKey(name); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	for _, k := range keys {
		if k != keys[0] || k == (seal.Key{}) {
			t.Errorf("%d makers got different keys, or none", len(keys))
		}
	}
	if again, made, err := seal.EnsureKey(name); err != nil || made || again != keys[0] {
		t.Errorf("read again: made %v, %v", made, err)
	}
	info, err := os.Stat(name)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key's file is %v, %v", info.Mode(), err)
	}
	if left, err := os.ReadDir(filepath.Dir(name)); err != nil || len(left) != 1 {
		t.Errorf("beside the key lie %v, %v", left, err)
	}
}

func TestReadKeyRefuses(t *testing.T) {
	good := strings.Repeat("0f", 32)
	for what, text := range map[string]string{"short": good[1:], "long": good + "00",
		"no digits": "x" + good[1:], "empty": ""} {
		t.Run(what, func(t *testing.T) {
			name := filepath.Join(t.TempDir(), "key")
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := seal.ReadKey(name)
			if err == nil || len(text) > 0 && strings.Contains(err.Error(), text) ||
				!strings.Contains(err.Error(), name) {
				t.Errorf("%s: %v", what, err)
			}
			if _, made, ensured := seal.EnsureKey(name); made || ensured == nil {
				t.Errorf("%s: made %v in its place, %v", what, made, ensured)
			}
		})
	}
}
