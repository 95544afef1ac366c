package mxfp8

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/weights/safetensors"
)

func patterns(n int, pattern func(i uint64) uint64) []byte {
	row := make([]byte, 0, 2*n)
	for i := range uint64(n) {
		row = binary.LittleEndian.AppendUint16(row, uint16(pattern(i)))
	}
	return row
}

func every(step uint64) []byte { return patterns(65536, func(i uint64) uint64 { return i * step }) }

func near(exponents uint64) []byte {
	return patterns(1<<18, func(i uint64) uint64 {
		noise := i * 2654435761 >> 7 % 65536
		return noise>>15<<15 | min(254, i/64%255+noise%exponents)<<7 | noise>>4&127
	})
}

func row(values []byte) (codes, scales []byte, e Error) {
	codes, scales = make([]byte, len(values)/2), make([]byte, Scales(int64(len(values)/2)))
	Row(codes, scales, values, &e)
	return codes, scales, e
}

// TestGolden: codes and scales are those that NumPy and ml_dtypes make, of every bit pattern in
// several neighbourhoods, and of rows like weights.
func TestGolden(t *testing.T) {
	text, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Many map[string]struct{ Codes, Scales string }
		Rows []struct{ Row, Codes, Scales string }
	}
	if err := json.Unmarshal(text, &golden); err != nil {
		t.Fatal(err)
	}
	digest := func(data []byte) string { sum := sha256.Sum256(data); return hex.EncodeToString(sum[:]) }
	for name, values := range map[string][]byte{
		"every 1": every(1), "every 40503": every(40503), "every 129": every(129), "near 2": near(2),
		"near 12": near(12), "near 30": near(30),
	} {
		codes, scales, _ := row(values)
		if want := golden.Many[name]; digest(codes) != want.Codes || digest(scales) != want.Scales {
			t.Errorf("%s: other codes (%v) or scales (%v)", name, digest(codes) != want.Codes,
				digest(scales) != want.Scales)
		}
	}
	if len(golden.Rows) < 7 {
		t.Errorf("%d rows", len(golden.Rows))
	}
	for i, want := range golden.Rows {
		values, err := hex.DecodeString(want.Row)
		if err != nil {
			t.Fatal(err)
		}
		if codes, scales, _ := row(values); hex.EncodeToString(codes) != want.Codes ||
			hex.EncodeToString(scales) != want.Scales {
			t.Errorf("row %d:\n%x %x, want\n%s %s", i, codes, scales, want.Codes, want.Scales)
		}
	}
}

// FuzzRow: whatever the bits are, an element is the nearest that E4M3 has at the block's scale, or
// the largest, and the report adds up.
func FuzzRow(f *testing.F) {
	f.Add([]byte{0, 0, 0x80, 0x3f})
	f.Add(bytes.Repeat([]byte{0xff, 0x7f}, 40))
	f.Add(every(40503)[:4096])
	f.Add(near(12)[:4096])
	f.Fuzz(func(t *testing.T, values []byte) {
		values = values[:min(len(values), 1<<12)/2*2]
		codes, scales, e := row(values)
		if e.Elements != int64(len(codes)) || e.Saturated+e.Flushed+e.NotFinite > e.Elements ||
			e.Max > 1 || e.Mean > 1 {
			t.Fatalf("%+v of %d elements", e, len(codes))
		}
		for i, code := range codes {
			scale, was := math.Ldexp(1, int(scales[i/Block])-bias),
				float64(number(binary.LittleEndian.Uint16(values[2*i:])))
			if scales[i/Block] == nanScale {
				if code != nan {
					t.Fatalf("element %d of a block that is no number is %#x", i, code)
				}
				continue
			}
			is := Element(code) * scale
			if math.Signbit(was) != (code&0x80 != 0) || math.IsNaN(is) {
				t.Fatalf("%g became %g", was, is)
			}
			for other := range 256 {
				if v := Element(byte(other)) * scale; math.Abs(v-was) < math.Abs(is-was) {
					t.Fatalf("%g became %g and is nearer to %g", was, is, v)
				}
			}
		}
	})
}

// TestTies: a number in the middle of two elements goes to the one whose last bit is
// 0; above 464 it saturates.
func TestTies(t *testing.T) {
	for code := range largest {
		lower, upper := Element(byte(code)), Element(byte(code+1))
		want := byte(code + code&1)
		if got := element((lower + upper) / 2); got != want {
			t.Errorf("between %g and %g: %#x, want %#x", lower, upper, got, want)
		}
		if got := element(-(lower + upper) / 2); got != want|0x80 {
			t.Errorf("between -%g and -%g: %#x", lower, upper, got)
		}
	}
	// 464 and 466, of a block whose scale is 1
	values := patterns(2, func(i uint64) uint64 { return []uint64{0x43e8, 0x43e9}[i] })
	codes, scales, e := row(values)
	if codes[0] != largest || codes[1] != largest || scales[0] != bias || e.Saturated != 1 {
		t.Errorf("%x, %x, %+v", codes, scales, e)
	}
	codes, scales, e = row(patterns(3, func(i uint64) uint64 { return []uint64{0, 0x8000, 0}[i] }))
	if codes[0] != 0 || codes[1] != 0x80 || scales[0] != 0 || e.Max != 0 || e.Flushed != 0 {
		t.Errorf("zeros: %x, %x, %+v", codes, scales, e)
	}
}

// TestFolder: matrices of linear layers are quantised, all else is as it was, and the result is a
// checkpoint with 8.25 bits for each quantised element.
func TestFolder(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "out")
	matrix := near(4)[:2*48*80]
	tensors := []safetensors.Data{
		{Name: "model.layers.0.mlp.gate_proj.weight", Dtype: safetensors.BF16, Shape: []int64{48, 80}, Bytes: matrix},
		{Name: "model.layers.0.experts.weight", Dtype: safetensors.BF16, Shape: []int64{2, 24, 80}, Bytes: matrix},
		{Name: "model.embed_tokens.weight", Dtype: safetensors.BF16, Shape: []int64{48, 80}, Bytes: matrix},
		{Name: "lm_head.weight", Dtype: safetensors.BF16, Shape: []int64{48, 80}, Bytes: matrix},
		{Name: "model.layers.0.mlp.gate.weight", Dtype: safetensors.BF16, Shape: []int64{48, 80}, Bytes: matrix},
		{Name: "model.norm.weight", Dtype: safetensors.BF16, Shape: []int64{80}, Bytes: matrix[:160]},
		safetensors.NewF32("value.weight", []int64{1, 2}, []float32{1, 2}),
	}
	var file bytes.Buffer
	if err := safetensors.Write(&file, tensors, map[string]string{"format": "pt"}); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"model.safetensors": file.Bytes(), "config.json": []byte("{}"),
		"rondo.json": []byte("{}"), ".hidden": nil} {
		if err := os.WriteFile(filepath.Join(from, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	done := int64(0)
	report, err := Folder(t.Context(), from, to, func(now, _ int64) { done = now })
	if err != nil || len(report) != 2 || report[0].Name != "model.layers.0.experts.weight" ||
		report[0].Elements != 48*80 || report[0].Mean <= 0 || report[0].Mean > 0.05 || done == 0 {
		t.Fatalf("%+v, %v", report, err)
	}
	c, err := safetensors.Open(to)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	wantCodes, wantScales := []byte(nil), []byte(nil)
	for at := 0; at < len(matrix); at += 160 {
		codes, scales, _ := row(matrix[at : at+160])
		wantCodes, wantScales = append(wantCodes, codes...), append(wantScales, scales...)
	}
	for _, was := range tensors {
		is, found := c.Tensor(was.Name)
		if !found {
			t.Fatalf("%s is gone", was.Name)
		}
		data, err := is.Read(is.File)
		if err != nil {
			t.Fatal(err)
		}
		scales, quantised := c.Tensor(was.Name + ScaleSuffix)
		if want := strings.Contains(was.Name, "gate_proj") || strings.Contains(was.Name, "experts"); quantised != want {
			t.Errorf("%s is quantised: %v", was.Name, quantised)
		}
		if !quantised {
			if is.Dtype != was.Dtype || !bytes.Equal(data, was.Bytes) {
				t.Errorf("%s changed", was.Name)
			}
			continue
		}
		if data, err := scales.Read(scales.File); err != nil || !bytes.Equal(data, wantScales) ||
			scales.Shape[len(scales.Shape)-1] != 3 || scales.Dtype != "F8_E8M0" {
			t.Errorf("scales of %s: %v, %+v", was.Name, err, scales)
		}
		if is.Dtype != "F8_E4M3" || !bytes.Equal(data, wantCodes) {
			t.Errorf("codes of %s differ", was.Name)
		}
	}
	for name, there := range map[string]bool{"config.json": true, "rondo.json": false, ".hidden": false,
		safetensors.IndexName: false} {
		if _, err := os.Stat(filepath.Join(to, name)); (err == nil) != there {
			t.Errorf("%s: %v", name, err)
		}
	}
}
