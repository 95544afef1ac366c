package fetch

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-rl/rondo/storage"
)

// paced is a store that gives so many bytes a second.
type paced struct {
	storage.Store
	rate float64
}

func (p *paced) GetRange(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	time.Sleep(time.Duration(float64(length) / p.rate * float64(time.Second)))
	return p.Store.GetRange(ctx, key, offset, length)
}

// TestFasterWay: a version comes by a delta where that is faster than its files, by what the last
// transfers have shown, and it says why it does not.
func TestFasterWay(t *testing.T) {
	s := newStore(t)
	versions := steps(t, s, 6)
	const fast, slow = 1e9, 1e6
	synctest.Test(t, func(t *testing.T) {
		at := t.TempDir()
		from := &paced{s, fast}
		follow := func() *Folder {
			f := open(t, at)
			f.least = 1 << 20
			return f
		}
		f := follow()
		fetched(t, f, from, 1)
		for _, c := range []struct {
			version int64
			make    float64 // bytes a second; 0: not measured
			rate    float64
			deltas  int
		}{
			{2, 0, fast, 1},    // nothing tells that it is slower
			{3, 50e6, fast, 0}, // the store is faster than this machine
			{4, 50e6, slow, 0}, // the store has become slow, which this reading shows
			{5, 50e6, slow, 1},
			{6, 5e5, slow, 0}, // this machine has become slower than that
		} {
			if c.make > 0 {
				f.note(func(r *rates) { r.Make = c.make })
			}
			from.rate = c.rate
			f.Close()
			f = follow() // another process knows it, too
			v := fetched(t, f, from, c.version)
			same(t, at, c.version, versions[c.version], named("config.json", fmt.Sprint(c.version)))
			if v.Deltas != c.deltas || (c.deltas == 0) != strings.Contains(v.Whole, "deltas would take") {
				t.Errorf("version %d came by %d deltas, want %d: %s", c.version, v.Deltas, c.deltas, v.Whole)
			}
		}
		for _, text := range []string{"", "{", `{"store":-1,"make":1}`, `{"store":"x"}`} {
			if err := os.WriteFile(filepath.Join(at, ratesName), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			if r := f.readRates(); r != (rates{}) {
				t.Errorf("%q says %+v", text, r)
			}
		}
	})
}
