package safetensors_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/rondo-rl/rondo/weights/safetensors"
)

// notFinite decodes an element by the definition of its type, one bit field after the other.
func notFinite(d safetensors.Dtype, bits uint64) bool {
	field := func(exponent, mantissa int) (e, m uint64) {
		return bits >> mantissa & (1<<exponent - 1), bits & (1<<mantissa - 1)
	}
	switch d {
	case "F64":
		return math.IsNaN(math.Float64frombits(bits)) || math.IsInf(math.Float64frombits(bits), 0)
	case safetensors.F32, "C64":
		v := float64(math.Float32frombits(uint32(bits)))
		return math.IsNaN(v) || math.IsInf(v, 0)
	case safetensors.BF16:
		v := float64(math.Float32frombits(uint32(bits) << 16))
		return math.IsNaN(v) || math.IsInf(v, 0)
	case "F16":
		e, _ := field(5, 10)
		return e == 31
	case "F8_E5M2":
		e, _ := field(5, 2)
		return e == 31
	case "F8_E4M3":
		e, m := field(4, 3)
		return e == 15 && m == 7
	case "F8_E8M0":
		return bits == 255
	case "F8_E4M3FNUZ", "F8_E5M2FNUZ":
		return bits == 128
	}
	return false
}

var widths = map[safetensors.Dtype]int{
	"F64": 8, "F32": 4, "C64": 4, "BF16": 2, "F16": 2, "F8_E5M2": 1, "F8_E4M3": 1, "F8_E8M0": 1,
	"F8_E4M3FNUZ": 1, "F8_E5M2FNUZ": 1,
	"I8": 1, "U8": 1, "I32": 4, "I64": 8, "BOOL": 1, "U16": 2,
}

func element(width int, bits uint64) []byte {
	return binary.LittleEndian.AppendUint64(nil, bits)[:width]
}

// search writes a file in pieces of random sizes.
func search(t *testing.T, random *rand.Rand, tensors ...safetensors.Data) []safetensors.NotFinite {
	t.Helper()
	var file bytes.Buffer
	if err := safetensors.Write(&file, tensors, nil); err != nil {
		t.Fatal(err)
	}
	header, err := safetensors.Validate(bytes.NewReader(file.Bytes()), int64(file.Len()), 0)
	if err != nil {
		t.Fatal(err)
	}
	numbers := safetensors.NewNumbers(header)
	for data := file.Bytes(); len(data) > 0; {
		n := min(len(data), 1+random.IntN(9000))
		if random.IntN(2) == 0 {
			n = min(n, 1+random.IntN(9))
		}
		if _, err := numbers.Write(data[:n]); err != nil {
			t.Fatal(err)
		}
		data = data[n:]
	}
	return numbers.List()
}

// TestNumbersOfEveryPattern: each pattern of 8 and 16 bits, and those at the edges of wider types,
// is judged as its type defines it, in a tensor of its own.
func TestNumbersOfEveryPattern(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for d, width := range widths {
		patterns := []uint64{}
		switch {
		case width <= 2:
			for bits := range uint64(1) << (8 * width) {
				patterns = append(patterns, bits)
			}
		default:
			for range 3000 {
				bits := random.Uint64()
				if random.IntN(2) == 0 { // near the exponent that is all ones
					bits |= 0x7ff0000000000000
				}
				if width == 4 {
					bits >>= 32
				}
				patterns = append(patterns, bits)
			}
			patterns = append(patterns, math.Float64bits(math.Inf(1))>>(64-8*width), 0x7f800000,
				0xff800000, 0x7f7fffff, 0x7fc00000)
		}
		for some := range slices.Chunk(patterns, 512) { // tensors of a file
			var tensors []safetensors.Data
			want := map[string]int64{}
			for i, bits := range some {
				elements := 1 + random.IntN(5)
				at := random.IntN(elements)
				data := make([]byte, elements*width)
				copy(data[at*width:], element(width, bits))
				if d == "C64" {
					data, at = append(data, data...), at/2
				}
				name := fmt.Sprintf("%d: %#x", i, bits)
				if notFinite(d, bits) {
					want[name] = int64(at)
				}
				tensors = append(tensors, safetensors.Data{Name: name, Dtype: d,
					Shape: []int64{int64(elements)}, Bytes: data})
			}
			wantFound(t, search(t, random, tensors...), want)
		}
	}
}

// wantFound holds what was found to the first element of each tensor that has one.
func wantFound(t *testing.T, found []safetensors.NotFinite, want map[string]int64) {
	t.Helper()
	for _, f := range found {
		if at, known := want[f.Tensor]; !known || at != f.Element {
			t.Fatalf("found %v, want tensor %s at %d (%v)", f, f.Tensor, at, known)
		}
	}
	if len(found) != len(want) {
		t.Fatalf("found %v, want %v", found, want)
	}
}

// TestNumbersNamesTensors: each tensor that holds one is named once, with its first element,
// however the file is cut into pieces.
func TestNumbersNamesTensors(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 2))
		var tensors []safetensors.Data
		want := map[string]int64{}
		for i := range 1 + random.IntN(8) {
			name := fmt.Sprintf("t%d", i)
			for d, width := range widths {
				n := random.IntN(6000)
				data := make([]byte, n*width)
				for j := range n {
					copy(data[j*width:], element(width, 0x1111111111111111))
				}
				if d == safetensors.BF16 && n > 0 && random.IntN(2) == 0 {
					at := random.IntN(n)
					copy(data[at*width:], element(width, 0x7fc0))
					copy(data[(n-1)*width:], element(width, 0xff80))
					want[name+"BF16"] = int64(at)
				}
				shape := []int64{int64(n)}
				if d == "C64" {
					data, shape = data[:n/2*8], []int64{int64(n / 2)}
				}
				tensors = append(tensors, safetensors.Data{Name: name + string(d), Dtype: d, Shape: shape, Bytes: data})
			}
		}
		wantFound(t, search(t, random, tensors...), want)
	}
}

// BenchmarkNumbers is the cost of the search in a reading of a file.
func BenchmarkNumbers(b *testing.B) {
	data := bytes.Repeat([]byte{0x11}, 4<<20)
	for _, d := range []safetensors.Dtype{safetensors.BF16, safetensors.F32, "F8_E4M3", "F8_E4M3FNUZ"} {
		b.Run(string(d), func(b *testing.B) {
			h := &safetensors.Header{Tensors: []safetensors.Tensor{{Name: "w", Dtype: d, Size: int64(len(data))}}}
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				_, _ = safetensors.NewNumbers(h).Write(data)
			}
		})
	}
}
