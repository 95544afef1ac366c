package embed

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const tokenizerFile = `{"normalizer":{"type":"BertNormalizer","lowercase":true},"pre_tokenizer":{"type":"BertPreTokenizer"},
	"model":{"type":"WordPiece","unk_token":"[UNK]","vocab":{"[UNK]":0,"read":1,"file":2}}}`

type made struct {
	dtype string
	shape []int
	data  []byte
}

// folder writes a model2vec folder.
func folder(t testing.TB, tensors map[string]made) string {
	t.Helper()
	dir := t.TempDir()
	header, offset := map[string]any{}, 0
	var data []byte
	for _, name := range []string{"embeddings", "mapping", "weights"} {
		if m, ok := tensors[name]; ok {
			header[name] = map[string]any{"dtype": m.dtype, "shape": m.shape, "data_offsets": []int{offset, offset + len(m.data)}}
			offset += len(m.data)
			data = append(data, m.data...)
		}
	}
	text, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	file := append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), append(text, data...)...)
	for name, content := range map[string][]byte{
		"model.safetensors": file, "tokenizer.json": []byte(tokenizerFile), "config.json": []byte(`{"model_type":"model2vec","normalize":true}`),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func packed(values any) []byte {
	var b bytes.Buffer
	if err := binary.Write(&b, binary.LittleEndian, values); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func TestModel2Vec(t *testing.T) {
	// Of [UNK] (9, 9), read (3, 0) and file (0, 4).
	full := []float32{9, 9, 3, 0, 0, 4}
	for name, tensors := range map[string]map[string]made{
		"F32":    {"embeddings": {"F32", []int{3, 2}, packed(full)}},
		"F16":    {"embeddings": {"F16", []int{3, 2}, packed([]uint16{0x4880, 0x4880, 0x4200, 0, 0, 0x4400})}},
		"BF16":   {"embeddings": {"BF16", []int{3, 2}, packed([]uint16{0x4110, 0x4110, 0x4040, 0, 0, 0x4080})}},
		"F64":    {"embeddings": {"F64", []int{3, 2}, packed([]float64{9, 9, 3, 0, 0, 4})}},
		"I8":     {"embeddings": {"I8", []int{3, 2}, packed([]int8{9, 9, 3, 0, 0, 4})}},
		"mapped": {"embeddings": {"F32", []int{2, 2}, packed([]float32{0, 4, 3, 0})}, "mapping": {"I64", []int{3}, packed([]int64{0, 1, 0})}},
		"weighted": {"embeddings": {"I8", []int{3, 2}, packed([]int8{9, 9, 1, 0, 0, 1})},
			"weights": {"F64", []int{3}, packed([]float64{1, 3, 4})}},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := Open("model2vec:"+folder(t, tensors), "")
			if err != nil {
				t.Fatal(err)
			}
			v, err := e.Embed(t.Context(), []string{"Read the FILE", "nothing known", "file"})
			if err != nil || e.Dimensions() != 2 || !strings.HasPrefix(e.ID(), "model2vec-") {
				t.Fatal(e.ID(), e.Dimensions(), err)
			}
			if got := fmt.Sprintf("%.3v", v); got != "[[0.6 0.8] [0 0] [0 1]]" {
				t.Errorf("the vectors are %s", got)
			}
		})
	}
}

func TestModel2VecRefuses(t *testing.T) {
	whole := map[string]made{"embeddings": {"F32", []int{3, 2}, packed([]float32{9, 9, 3, 0, 0, 4})}}
	with := func(name string, m made) map[string]made {
		return map[string]made{"embeddings": whole["embeddings"], name: m}
	}
	for name, c := range map[string]struct {
		tensors map[string]made
		want    string
	}{
		"none":             {map[string]made{"weights": {"F32", []int{3}, packed([]float32{1, 1, 1})}}, `no tensor "embeddings"`},
		"few":              {map[string]made{"embeddings": {"F32", []int{2, 2}, packed([]float32{9, 9, 3, 0})}}, "2 rows for 3 tokens"},
		"a vector":         {map[string]made{"embeddings": {"F32", []int{2}, packed([]float32{9, 9})}}, "1 dimensions, want 2"},
		"whole numbers":    {map[string]made{"embeddings": {"I32", []int{3, 2}, packed(make([]int32, 6))}}, "type I32"},
		"no number":        {map[string]made{"embeddings": {"F32", []int{3, 1}, packed([]float32{1, float32(math.NaN()), 1})}}, "NaN"},
		"no dimension":     {map[string]made{"embeddings": {"F32", []int{3, 0}, nil}}, "0 dimensions"},
		"mapped outside":   {with("mapping", made{"I64", []int{3}, packed([]int64{0, 1, 3})}), "row 3 of 3"},
		"mapped below":     {with("mapping", made{"I32", []int{3}, packed([]int32{0, -1, 2})}), "mapping"},
		"mapped to floats": {with("mapping", made{"F32", []int{3}, packed([]float32{0, 1, 2})}), "type F32"},
		"few mapped":       {with("mapping", made{"I32", []int{2}, packed([]int32{0, 1})}), "2 rows for 3 tokens"},
		"few weights":      {with("weights", made{"F32", []int{2}, packed([]float32{0, 1})}), "2 weights for 3 tokens"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Open("model2vec:"+folder(t, c.tensors), ""); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: the error is %v, want one with %q", name, err, c.want)
			}
		})
	}
	for name, content := range map[string]string{
		"config.json": `{"model_type":"bert"}`, "tokenizer.json": "{", "model.safetensors": "too short",
	} {
		t.Run(name, func(t *testing.T) {
			dir := folder(t, whole)
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := Open("model2vec:"+dir, ""); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: the error is %v", name, err)
			}
		})
	}
}

func TestHalf(t *testing.T) {
	for bits, want := range map[uint16]float32{0: 0, 0x3c00: 1, 0xc000: -2, 0x7bff: 65504, 1: 1.0 / (1 << 24), 0x8001: -1.0 / (1 << 24), 0x0400: 1.0 / (1 << 14)} {
		if got := half(bits); got != want {
			t.Errorf("half of %#x is %v, want %v", bits, got, want)
		}
	}
	if !math.IsInf(float64(half(0xfc00)), -1) || !math.IsNaN(float64(half(0x7e00))) {
		t.Error("infinity or NaN")
	}
}

// FuzzModel2Vec reads tensors that a file claims to have.
func FuzzModel2Vec(f *testing.F) {
	file := func(tensors map[string]made) []byte {
		content, err := os.ReadFile(filepath.Join(folder(f, tensors), "model.safetensors"))
		if err != nil {
			f.Fatal(err)
		}
		return content
	}
	whole := made{"F32", []int{3, 2}, packed(make([]float32, 6))}
	f.Add(file(map[string]made{"embeddings": whole}))
	f.Add(file(map[string]made{"embeddings": whole, "mapping": {"I64", []int{3}, packed(make([]int64, 3))}, "weights": {"F16", []int{3}, make([]byte, 6)}}))
	dir := folder(f, map[string]made{"embeddings": whole})
	template, err := readModel(dir)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		m := &model{tokenizer: template.tokenizer}
		if m.readTensors(bytes.NewReader(file), int64(len(file))) == nil {
			if v := m.vector("read file unknown"); len(v) != m.dimensions {
				t.Errorf("%d of %d dimensions", len(v), m.dimensions)
			}
		}
	})
}
