package safetensors_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/weights/safetensors"
)

// file makes a safetensors file of a header as it stands and n bytes of data.
func file(header string, n int) []byte {
	data := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	data = append(data, header...)
	for i := range n {
		data = append(data, byte(i))
	}
	return data
}

func validate(data []byte) (*safetensors.Header, error) {
	return safetensors.Validate(bytes.NewReader(data), int64(len(data)), 0)
}

func TestWriteAndRead(t *testing.T) {
	values := []float32{1, -2.5, float32(math.Inf(1)), 0, math.MaxFloat32, 1e-40}
	tensors := []safetensors.Data{
		{Name: "half", Dtype: safetensors.BF16, Shape: []int64{2}, Bytes: []byte{0x80, 0x3f, 0x20, 0xc0}},
		{Name: "bytes", Dtype: "U8", Shape: []int64{3}, Bytes: []byte{1, 2, 3}},
		safetensors.NewF32("scalar", nil, []float32{7}),
		safetensors.NewF32("a.weight", []int64{2, 3}, values),
		safetensors.NewF32("empty", []int64{0, 5}, nil),
	}
	metadata := map[string]string{"format": "pt", "step": "12", "quoted \" ü": ""}
	var written, again bytes.Buffer
	if err := safetensors.Write(&written, tensors, metadata); err != nil {
		t.Fatal(err)
	}
	tensors[0], tensors[4] = tensors[4], tensors[0]
	if err := safetensors.Write(&again, tensors, metadata); err != nil || !bytes.Equal(written.Bytes(), again.Bytes()) {
		t.Errorf("other bytes in another order of the tensors (%v)", err)
	}
	h, err := validate(written.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(h.Metadata, metadata) || len(h.Tensors) != 5 {
		t.Errorf("metadata %v, %d tensors", h.Metadata, len(h.Tensors))
	}
	for name, want := range map[string][]float32{"a.weight": values, "half": {1, -2.5}, "scalar": {7}, "empty": {}} {
		t.Run(name, func(t *testing.T) {
			tensor, ok := h.Tensor(name)
			got, err := tensor.ReadF32(bytes.NewReader(written.Bytes()))
			if !ok || err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %v, %v; want %v", name, got, err, want)
			}
			if width := map[safetensors.Dtype]int64{safetensors.F32: 4,
				safetensors.BF16: 2}[tensor.Dtype]; tensor.Offset%width != 0 {
				t.Errorf("%s at byte %d is not aligned", name, tensor.Offset)
			}
		})
	}
	tensor, _ := h.Tensor("bytes")
	if got, err := tensor.Read(bytes.NewReader(written.Bytes())); err != nil || !bytes.Equal(got, []byte{1, 2, 3}) {
		t.Errorf("bytes: %v, %v", got, err)
	}
	if _, err := tensor.ReadF32(bytes.NewReader(written.Bytes())); err == nil {
		t.Error("U8 was read as floats")
	}
}

func TestWriteRefuses(t *testing.T) {
	one := safetensors.NewF32("a", []int64{1}, []float32{1})
	for want, tensors := range map[string][]safetensors.Data{
		"the name is taken":    {one, one},
		"shape [2] of F32":     {{Name: "a", Dtype: safetensors.F32, Shape: []int64{2}, Bytes: make([]byte, 4)}},
		`unknown type "FLOAT"`: {{Name: "a", Dtype: "FLOAT", Shape: []int64{1}, Bytes: make([]byte, 4)}},
		"is negative":          {{Name: "a", Dtype: safetensors.F32, Shape: []int64{-1, -1}, Bytes: make([]byte, 4)}},
		"reserved":             {safetensors.NewF32("__metadata__", []int64{1}, []float32{1})},
	} {
		t.Run(want, func(t *testing.T) {
			if err := safetensors.Write(&bytes.Buffer{}, tensors, nil); err == nil ||
				!strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %q", err, want)
			}
		})
	}
}

// TestKnownFiles: files as the format's documentation describes them.
func TestKnownFiles(t *testing.T) {
	good := map[string]struct {
		header string
		data   int
	}{
		"no tensors":      {`{}`, 0},
		"only metadata":   {`{"__metadata__":{"a":"b"}}`, 0},
		"padding":         {`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}     `, 4},
		"spaces inside":   {`{ "a" : { "shape" : [ 2 , 1 ] , "data_offsets" : [ 0 , 2 ] , "dtype" : "F8_E4M3" } }`, 2},
		"another order":   {`{"b":{"dtype":"F8_E5M2","shape":[2],"data_offsets":[4,6]},"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}`, 6},
		"empty tensors":   {`{"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"b":{"dtype":"F32","shape":[5,0],"data_offsets":[0,0]}}`, 0},
		"scalar":          {`{"a":{"dtype":"I64","shape":[],"data_offsets":[0,8]}}`, 8},
		"two in one byte": {`{"a":{"dtype":"F4","shape":[4],"data_offsets":[0,2]}}`, 2},
	}
	for name, test := range good {
		if _, err := validate(file(test.header, test.data)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestHostileFiles(t *testing.T) {
	tensor := func(dtype, shape, offsets string) string {
		return fmt.Sprintf(`{"a":{"dtype":%q,"shape":%s,"data_offsets":%s}}`, dtype, shape, offsets)
	}
	two := func(a, b string) string {
		return fmt.Sprintf(`{"a":{"dtype":"U8","shape":[4],"data_offsets":%s},"b":{"dtype":"U8","shape":[4],"data_offsets":%s}}`, a, b)
	}
	tests := []struct {
		name string
		data []byte
		want string
	}{
		{"empty file", nil, "a file of 0 bytes"},
		{"only a length", make([]byte, 8), "a file of 8 bytes"},
		{"header of no bytes", file("", 4), "does not begin with {"},
		{"header longer than the file", append(binary.LittleEndian.AppendUint64(nil, 100), "{}"...),
			"a header of 100 bytes in a file of 10"},
		{"header length of all ones", append(binary.LittleEndian.AppendUint64(nil, math.MaxUint64), "{}"...),
			"a header of 18446744073709551615 bytes"},
		{"header length beyond int64", append(binary.LittleEndian.AppendUint64(nil, 1<<63), "{}"...),
			"a header of 9223372036854775808 bytes"},
		{"space before", file(" {}", 0), "does not begin with {"},
		{"array", file("[]", 0), "does not begin with {"},
		{"cut off", file(`{"a":{"dtype":"F32"`, 0), "ends too early"},
		{"second value", file(`{}{}`, 0), "2 bytes after its end"},
		{"zero after", file("{}\x00", 0), "1 bytes after its end"},
		{"not UTF-8", file("{\"\xff\":1}", 0), "not UTF-8"},
		{"nested deeply", file(`{"a":`+strings.Repeat("[", 1<<20), 0), "in place of {"},
		{"nested deeply in a shape", file(`{"a":{"shape":`+strings.Repeat("[", 1<<20), 0), "shape"},
		{"unknown type", file(tensor("F31", "[1]", "[0,4]"), 4), `unknown type "F31"`},
		{"type in small letters", file(tensor("f32", "[1]", "[0,4]"), 4), `unknown type "f32"`},
		{"size lies", file(tensor("F32", "[2]", "[0,4]"), 4), "has 64 bits, but the file holds 4 bytes"},
		{"overflow", file(tensor("F32", "[4294967296,4294967296,1]", "[0,4]"), 4), "too many elements"},
		{"overflow to the right size", file(tensor("U8", "[4611686018427387905,4]", "[0,4]"), 4), "too many elements"},
		{"negative dimension", file(tensor("F32", "[-1]", "[0,4]"), 4), "is not a size"},
		{"two negative dimensions", file(tensor("F32", "[-1,-1]", "[0,4]"), 4), "is not a size"},
		{"fraction", file(tensor("F32", "[1.0]", "[0,4]"), 4), "is not a size"},
		{"exponent", file(tensor("F32", "[1e0]", "[0,4]"), 4), "is not a size"},
		{"text as a number", file(tensor("F32", `["1"]`, "[0,4]"), 4), "is not a size"},
		{"null as a number", file(tensor("F32", "[null]", "[0,0]"), 0), "is not a size"},
		{"beyond int64", file(tensor("F32", "[9223372036854775808]", "[0,4]"), 4), "is not a size"},
		{"null shape", file(tensor("F32", "null", "[0,4]"), 4), "not an array"},
		{"33 dimensions", file(tensor("U8", "["+strings.Repeat("1,", 32)+"1]", "[0,1]"), 1),
			"not an array of at most 32"},
		{"three offsets", file(tensor("F32", "[1]", "[0,4,8]"), 8), "at most 2 numbers"},
		{"one offset", file(tensor("F32", "[1]", "[4]"), 4), "not a range"},
		{"offsets reversed", file(tensor("F32", "[1]", "[4,0]"), 4), "not a range"},
		{"past the end", file(tensor("F32", "[2]", "[0,8]"), 4), "ends at byte 8 of 4"},
		{"far past the end", file(tensor("U8", "[9223372036854775800]", "[0,9223372036854775800]"), 4), "ends at byte"},
		{"data left over", file(tensor("F32", "[1]", "[0,4]"), 5), "end at byte 4 of 5"},
		{"data without tensors", file("{}", 1), "end at byte 0 of 1"},
		{"hole before", file(tensor("F32", "[1]", "[4,8]"), 8), "begins at byte 4 of the data"},
		{"hole between", file(two("[0,4]", "[5,9]"), 9), "begins at byte 5"},
		{"overlap", file(two("[0,4]", "[3,7]"), 7), "begins at byte 3"},
		{"the same bytes twice", file(two("[0,4]", "[0,4]"), 4), "begins at byte 0"},
		{"same name twice",
			file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`,
				2), `the key "a" appears twice`},
		{"same name written differently",
			file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"\u0061":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`,
				2), `the key "a" appears twice`},
		{"shape twice", file(`{"a":{"dtype":"U8","shape":[9],"shape":[1],"data_offsets":[0,1]}}`, 1),
			`the key "shape" appears twice`},
		{"metadata twice", file(`{"__metadata__":{},"__metadata__":{}}`, 0), "appears twice"},
		{"metadata of numbers", file(`{"__metadata__":{"a":1}}`, 0), "is not a text"},
		{"metadata null", file(`{"__metadata__":{"a":null}}`, 0), "is not a text"},
		{"metadata of objects", file(`{"__metadata__":{"a":{"b":"c"}}}`, 0), "is not a text"},
		{"unknown key", file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1}}`, 1), "x: unknown"},
		{"key in capitals", file(`{"a":{"DTYPE":"U8","shape":[1],"data_offsets":[0,1]}}`, 1), "DTYPE: unknown"},
		{"no shape", file(`{"a":{"dtype":"U8","data_offsets":[0,1]}}`, 1), "is missing"},
		{"half a byte", file(tensor("F4", "[3]", "[0,2]"), 2), "has 12 bits"},
		{"long name", file(`{"`+strings.Repeat("n", 5000)+`":{}}`, 0), "a name of 5000 bytes"},
	}
	for _, test := range tests {
		_, err := validate(test.data)
		if !errors.Is(err, storage.ErrCorrupt) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		} else if len(err.Error()) > 500 {
			t.Errorf("%s: an error of %d bytes", test.name, len(err.Error()))
		}
	}
}

func TestHeaderLimit(t *testing.T) {
	data := file(`{"__metadata__":{"a":"`+strings.Repeat("x", 1000)+`"}}`, 0)
	if _, err := safetensors.Validate(bytes.NewReader(data), int64(len(data)),
		500); !errors.Is(err, storage.ErrCorrupt) || !strings.Contains(err.Error(), "limit 500") {
		t.Errorf("header above the limit: %v", err)
	}
	if _, err := safetensors.Validate(bytes.NewReader(data), int64(len(data)), 2000); err != nil {
		t.Errorf("header below the limit: %v", err)
	}
}

func TestTruncatedFiles(t *testing.T) {
	var whole bytes.Buffer
	tensors := []safetensors.Data{safetensors.NewF32("a", []int64{4}, make([]float32, 4)),
		safetensors.NewF32("b", []int64{2}, make([]float32, 2))}
	if err := safetensors.Write(&whole, tensors, nil); err != nil {
		t.Fatal(err)
	}
	for n := range whole.Len() {
		if _, err := validate(whole.Bytes()[:n]); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("first %d of %d bytes: %v", n, whole.Len(), err)
		}
	}
	// A reader that has less than it was said to have.
	if _, err := safetensors.Validate(bytes.NewReader(whole.Bytes()[:20]), int64(whole.Len()), 0); err == nil {
		t.Error("a file that ends in the header passes")
	}
}

func FuzzValidate(f *testing.F) {
	f.Add(file(`{}`, 0))
	f.Add(file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"__metadata__":{"b":"c"}}  `, 4))
	f.Add(file(`{"b":{"dtype":"F8_E5M2","shape":[2],"data_offsets":[4,6]},"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}`, 6))
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := validate(data)
		if err != nil {
			if !errors.Is(err, storage.ErrCorrupt) {
				t.Fatalf("error of another kind: %v", err)
			}
			return
		}
		var tensors []safetensors.Data
		total := 0
		for _, tensor := range h.Tensors {
			content, err := tensor.Read(bytes.NewReader(data))
			if err != nil {
				t.Fatalf("a tensor of a valid file: %v", err)
			}
			total += len(content)
			tensors = append(tensors, safetensors.Data{Name: tensor.Name, Dtype: tensor.Dtype,
				Shape: tensor.Shape, Bytes: content})
		}
		if total > len(data)-8 {
			t.Fatalf("tensors of %d bytes in a file of %d", total, len(data))
		}
		var written bytes.Buffer
		if err := safetensors.Write(&written, tensors, h.Metadata); err != nil {
			t.Fatalf("write what was read: %v", err)
		}
		again, err := validate(written.Bytes())
		if err != nil || len(again.Tensors) != len(h.Tensors) {
			t.Fatalf("read what was written: %v", err)
		}
	})
}
