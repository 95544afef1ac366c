package indexupdater

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/index/segment"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// planted stand in a tree's paths, names and texts, and nowhere else.
var planted = []string{"quokkaledger", "Wombatpayroll", "numbatcomment", "bilbyconstant"}

// leaks lists the planted strings that stand in data as it is, or in what a compressor made of it.
func leaks(data []byte) (found []string) {
	texts := [][]byte{bytes.ToLower(data)}
	for rest := data; ; {
		at := bytes.Index(rest, []byte{0x28, 0xb5, 0x2f, 0xfd}) // a frame of zstd
		if at < 0 {
			break
		}
		rest = rest[at:]
		texts = append(texts, bytes.ToLower(decompressed(rest)))
		rest = rest[4:]
	}
	for _, p := range planted {
		for _, text := range texts {
			if bytes.Contains(text, bytes.ToLower([]byte(p))) {
				found = append(found, p)
				break
			}
		}
	}
	return found
}

// decompressed is as much of a frame as can be read, whatever follows it.
func decompressed(frame []byte) []byte {
	d, err := zstd.NewReader(bytes.NewReader(frame), zstd.WithDecoderMaxMemory(64<<20), zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil
	}
	defer d.Close()
	var text bytes.Buffer
	_, _ = d.WriteTo(&text)
	return text.Bytes()
}

func TestLeaksAreFound(t *testing.T) {
	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	text := bytes.Repeat([]byte("some wombatPayroll and more "), 100)
	small := encoder.EncodeAll(text, []byte("before"))
	if bytes.Contains(small, []byte("some wombatPayroll and more some")) {
		t.Fatal("the text is not compressed, so this shows nothing")
	}
	for what, data := range map[string][]byte{"as it is": text, "compressed": append(small, "behind"...)} {
		if got := leaks(data); len(got) != 1 {
			t.Errorf("%s: %q", what, got)
		}
	}
}

// TestNothingOfTheCodeIsKept: no name, symbol, comment or text of the code stands in the store, the
// log, the cache or the local state, while a search finds it.
func TestNothingOfTheCodeIsKept(t *testing.T) {
	log := natstest.Log(t)
	f := folder(t, log, "code")
	local := t.TempDir()
	cache, err := segment.NewCache(filepath.Join(local, "cache"), 1<<30, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.Cache, f.StateFile = cache, filepath.Join(local, "state")
	if err := os.Mkdir(filepath.Join(f.Dir, planted[0]), 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 30 {
		write(t, f, fmt.Sprintf("%s/%s%d.go", planted[0], planted[0], i),
			fmt.Sprintf("package a\n\n// %s%d pays. %s\nfunc %s%d() string { return %q }\n", planted[1], i, planted[2],
				planted[1], i, planted[3]))
	}
	openRun(t, log, "uses", "code")
	start(t, log, time.Hour, f)
	told(t, log, "uses", "code", 1)
	write(t, f, planted[0]+"/other.go", "package a\n\n// "+planted[2]+"\nfunc "+planted[1]+"Other() {}\n")
	changed(t, log, "code", "x", nil)
	told(t, log, "uses", "code", 2)
	base, err := f.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	hits, err := f.Ask(t.Context(), base, "who pays the "+planted[1]+"?", planted[0], 5)
	if err != nil || len(hits) != 5 || len(leaks([]byte(hits[0].Path))) == 0 {
		t.Fatalf("%+v, %v", hits, err)
	}

	looked := 0
	look := func(where string, data []byte) {
		looked++
		if found := leaks(append([]byte(where), data...)); len(found) > 0 {
			t.Errorf("%s: %q", where, found)
		}
	}
	for o, err := range log.Store().List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		data, err := log.Store().Get(t.Context(), o.Key)
		if err != nil {
			t.Fatal(err)
		}
		look(o.Key, data)
	}
	for _, run := range []string{events.Catalogue, "uses"} {
		for _, e := range servicetest.All(t, log, run) {
			look(e.ID, e.Data)
		}
	}
	err = filepath.WalkDir(local, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(name)
		look(name, data)
		return err
	})
	if err != nil || looked < 10 {
		t.Errorf("looked at %d objects, facts and files: %v", looked, err)
	}
}
