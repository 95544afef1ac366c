package merkle

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// A state that is not sealed.
func itself(data []byte) []byte          { return data }
func asItIs(data []byte) ([]byte, error) { return data, nil }

func someState(t testing.TB) *State {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a/b/c.go"), "package c\n")
	write(t, filepath.Join(dir, "a/\xff"), "name\n")
	write(t, filepath.Join(dir, "image"), "\x00")
	settled()
	return walk(t, dir, nil).State
}

func TestStateFile(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "state")
	if _, err := LoadState(name, asItIs); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	state := someState(t)
	for range 2 { // the second time over the first
		if err := state.Save(name, itself); err != nil {
			t.Fatal(err)
		}
	}
	back, err := LoadState(name, asItIs)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(back.encode(), state.encode()) {
		t.Error("what is loaded is not what was saved")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("files are left: %v %v", entries, err)
	}
	info, err := os.Stat(name)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("others may read the names: %v %v", info.Mode(), err)
	}
	if err := state.Save(filepath.Join(dir, "absent/state"), itself); err == nil {
		t.Error("saved into a folder that is not there")
	}
}

func TestDamagedStateIsRefused(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "state")
	whole := someState(t).encode()
	refused := func(why string, data []byte) {
		t.Helper()
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if s, err := LoadState(name, asItIs); !errors.Is(err, ErrDamagedState) || s != nil {
			t.Errorf("%s: %v", why, err)
		}
	}
	for i := range whole {
		data := bytes.Clone(whole)
		data[i] ^= 0x20
		refused("a changed byte", data)
		refused("a part", whole[:i])
	}
	refused("more than it", append(bytes.Clone(whole), 0))
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(name, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadState(name, asItIs); !errors.Is(err, ErrDamagedState) {
		t.Errorf("a folder: %v", err)
	}
}

// sealed is a state file with a digest that fits: what a hostile writer makes.
func sealed(body []byte) []byte {
	sum := sha256.Sum256(body)
	return append(bytes.Clone(body), sum[:]...)
}

func TestHostileStateIsRefused(t *testing.T) {
	header := func(values ...uint64) []byte {
		out := []byte(stateMagic)
		for _, v := range values {
			out = binary.AppendUvarint(out, v)
		}
		return out
	}
	good := []uint64{1, 1 << 20, 1000, 10, 255, 1, 1}
	file := "\x00\x05\x01\x01\x01" + string(make([]byte, 16+32)) // Indexed, size 5
	nested := ""
	for range 12 {
		nested += "\x01\x01a\xff"
	}
	for why, body := range map[string][]byte{
		"a huge count":      append(header(good...), binary.AppendUvarint(nil, 1<<40)...),
		"a huge name":       append(header(good...), append([]byte{1}, binary.AppendUvarint(nil, 1<<40)...)...),
		"a number too long": append(header(good...), bytes.Repeat([]byte{0xff}, 20)...),
		"a path":            append(header(good...), "\x01\x03a/b"+file...),
		"the folder above":  append(header(good...), "\x01\x02.."+file...),
		"no name":           append(header(good...), "\x01\x00"+file...),
		"not sorted":        append(header(good...), "\x02\x01b"+file+"\x01a"+file...),
		"a name twice":      append(header(good...), "\x02\x01a"+file+"\x01a"+file...),
		"too deep":          append(header(good...), nested+"\x00"...),
		"an unknown reason": append(header(good...), "\x01\x01a\x7f"+file[1:]...),
		"too large a file":  append(header(1, 4, 1000, 10, 255, 1, 1), "\x01\x01a"+file...),
		"another version":   append(header(99, 1<<20, 1000, 10, 255, 1, 1), 0),
		"no limits":         append(header(1, 0, 0, 0, 0, 1, 1), 0),
	} {
		t.Run(why, func(t *testing.T) {
			if s, err := decodeState(sealed(body)); err == nil || s != nil {
				t.Errorf("%s: %v", why, err)
			}
		})
	}
	if _, err := decodeState(sealed(append(header(good...), "\x01\x01a"+file...))); err != nil {
		t.Errorf("the frame of these cases is itself refused: %v", err)
	}
}

func FuzzDecodeState(f *testing.F) {
	whole := someState(f).encode()
	f.Add(whole[:len(whole)-sha256.Size])
	f.Add([]byte(stateMagic))
	f.Fuzz(func(t *testing.T, body []byte) {
		s, err := decodeState(sealed(body))
		if err != nil {
			return
		}
		again, err := decodeState(s.encode())
		if err != nil || !bytes.Equal(again.encode(), s.encode()) {
			t.Errorf("what was read cannot be written and read again: %v", err)
		}
	})
}
