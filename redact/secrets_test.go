package redact

import (
	"encoding/pem"
	"math/rand/v2"
	"strings"
	"testing"
)

// pemKey is as long as an RSA key of 8192 bits.
func pemKey() string {
	var bits [4700]byte
	rand.NewChaCha8([32]byte{1}).Read(bits[:])
	return string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: bits[:]}))
}

// TestFindWhereverItStands: a long secret is found at every place of a text
// that is searched in windows.
func TestFindWhereverItStands(t *testing.T) {
	key := pemKey()
	for before := 0; before <= 2*window; before += 4001 {
		for name, filler := range map[string]string{"lines": "seven.\n", "one line": "seven. "} {
			head := strings.Repeat(filler, before/len(filler)) + "\n"
			text := head + key + strings.Repeat(filler, window/len(filler))
			found, err := Find(t.Context(), text)
			if err != nil || len(found) != 1 || found[0].Rule != "private-key" ||
				!strings.HasPrefix(Mask(text, found), head+"[redacted: private-key]\n"+filler) {
				t.Errorf("behind %d bytes of %s: %v, %v", before, name, found, err)
			}
		}
	}
}

func FuzzWindows(f *testing.F) {
	f.Add(window+1, 7)
	f.Add(10*window, 0)
	f.Add(5*window+3, window)
	f.Fuzz(func(t *testing.T, size, line int) {
		if size < 0 || size > 20*window {
			t.Skip()
		}
		data := make([]byte, size)
		for i := range data {
			if data[i] = byte('a' + i%23); line > 0 && i%line == 0 {
				data[i] = '\n'
			}
		}
		text, at := string(data), 0
		for i, part := range windows(text) {
			if i > 0 {
				at -= overlap
			}
			if len(part) > window || !strings.HasPrefix(text[at:], part) {
				t.Fatalf("part %d of %d bytes is not what stands at %d", i, len(part), at)
			}
			at += len(part)
		}
		if at != size {
			t.Errorf("the windows end at %d of %d", at, size)
		}
	})
}
