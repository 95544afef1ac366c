package table

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"slices"
	"strings"
	"testing"
)

// sample is a table with made-up rows.
func sample(dimensions int) *Table {
	list := []string{"clos", "fil", "open", "read", "readfil", "writ"}
	rows := make([]float32, len(list)*dimensions)
	x := uint32(1)
	for i := range rows {
		x = x*1664525 + 1013904223
		rows[i] = float32(int32(x)>>8) / (1 << 20) // exact
	}
	return Quantise(list, dimensions, rows)
}

func TestSameBitsOnEveryPlatform(t *testing.T) {
	sum := sha256.New()
	for _, text := range []string{"read the file", "readFile\nfunc readFile(name string) { open(); open(); write() }",
		strings.Repeat("close unknownword ", 500), ""} {
		for _, x := range sample(192).Embed(text) {
			binary.Write(sum, binary.LittleEndian, math.Float32bits(x))
		}
	}
	const want = "02201f1bbd2a0721"
	if got := hex.EncodeToString(sum.Sum(nil)[:8]); got != want {
		t.Errorf("the vectors' digest is %s, want %s: an index made on another platform, or before, would not fit", got,
			want)
	}
}

func TestEmbed(t *testing.T) {
	table := sample(16)
	length := func(v []float32) (sum float64) {
		for _, x := range v {
			sum += float64(x) * float64(x)
		}
		return math.Sqrt(sum)
	}
	for _, text := range []string{"read", "unknownword read", "read file",
		strings.Repeat("open close_file ", 100_000)} {
		if got := length(table.Embed(text)); math.Abs(got-1) > 1e-6 {
			t.Errorf("%.40q has a vector of length %v", text, got)
		}
	}
	for _, text := range []string{"", "+-*", "unknownword"} {
		if got := length(table.Embed(text)); got != 0 {
			t.Errorf("%q has a vector of length %v", text, got)
		}
	}
	if slices.Equal(table.Embed("read\nopen open"), table.Embed("open\nread read")) {
		t.Error("the first line counts as much as the others")
	}
}

func TestQuantised(t *testing.T) {
	const d = 8
	rows := []float32{1, -2, 3, -4, 0.5, 0, 4, 1, 0, 0, 0, 0, 0, 0, 0, 0, .1, .2, .3, .1, -.2, -.3, 0, 0}
	table := Quantise([]string{"a", "b", "c"}, d, rows)
	for i, x := range rows {
		got := float64(table.rows[i]) * float64(table.scales[i/d]) / 127 / 65535 * 4
		if math.Abs(got-float64(x)) > 0.02*4 {
			t.Errorf("value %d is %v, want %v", i, got, x)
		}
	}
}

func TestDecode(t *testing.T) {
	table := sample(24)
	table.Trained = Corpus{Sources: 2, Examples: map[string]int{"go": 3}, Seed: 4}
	file, err := table.Encode()
	if err != nil {
		t.Fatal(err)
	}
	read, err := Decode(file)
	if err != nil {
		t.Fatal(err)
	}
	again, err := read.Encode()
	if err != nil || !bytes.Equal(file, again) {
		t.Errorf("the file is another one after it was read: %v", err)
	}
	if !slices.Equal(read.Embed("read file"), table.Embed("read file")) {
		t.Error("the table that was read gives other vectors")
	}
	for size := range file {
		if _, err := Decode(file[:size]); err == nil {
			t.Fatalf("%d of %d bytes are a table", size, len(file))
		}
	}
	if _, err := Decode(append(slices.Clone(file), 0)); err == nil {
		t.Error("a table with a byte more")
	}
	if _, err := Decode(bytes.Replace(file, []byte("clos\n"), []byte("zlos\n"), 1)); err == nil {
		t.Error("words in no order")
	}
	if _, err := Decode(bytes.Replace(file, []byte(`"words_form":1`), []byte(`"words_form":9`), 1)); err == nil {
		t.Error("words of another form")
	}
}

func FuzzDecode(f *testing.F) {
	file, err := sample(4).Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(file)
	f.Fuzz(func(t *testing.T, file []byte) {
		if table, err := Decode(file); err == nil {
			table.Embed("read unknown files")
		}
	})
}
