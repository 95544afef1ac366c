package embed

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"

	"github.com/rondo-rl/rondo/index/embed/wordpiece"
	"github.com/rondo-rl/rondo/weights/safetensors"
)

// Limits of a model2vec folder.
const (
	maxModel  = 2 << 30 // bytes of model.safetensors: half a million tokens of 1024 dimensions
	maxConfig = 1 << 20
	maxTokens = 512 // of a text, as model2vec itself has it
)

// model is a static model in the form of model2vec: the mean of its tokens' rows.
type model struct {
	id         string
	tokenizer  *wordpiece.Tokenizer
	dimensions int
	rows       []float32
	row        []int32   // of each token; nil: its number
	weight     []float32 // of each token; nil: 1
}

func openModel(folder string) (*model, error) {
	m, err := readModel(folder)
	if err != nil {
		return nil, fmt.Errorf("model2vec folder %s: %w", folder, err)
	}
	return m, nil
}

func readModel(folder string) (*model, error) {
	sum := sha256.New() // of all that vectors depend on
	if err := checkConfig(folder); err != nil {
		return nil, err
	}
	text, err := readFile(folder, "tokenizer.json", wordpiece.MaxFile)
	if err != nil {
		return nil, err
	}
	sum.Write(text)
	m := &model{}
	if m.tokenizer, err = wordpiece.Parse(text); err != nil {
		return nil, fmt.Errorf("tokenizer.json: %w", err)
	}
	f, err := os.Open(filepath.Join(folder, "model.safetensors"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxModel {
		return nil, fmt.Errorf("model.safetensors: %d bytes, want a file of at most %d", info.Size(), maxModel)
	}
	if err := m.readTensors(f, info.Size()); err != nil {
		return nil, fmt.Errorf("model.safetensors: %w", err)
	}
	if _, err := io.Copy(sum, io.NewSectionReader(f, 0, info.Size())); err != nil {
		return nil, err
	}
	m.id = "model2vec-" + hex.EncodeToString(sum.Sum(nil)[:8])
	return m, nil
}

// checkConfig refuses what is no model2vec folder. Whether the model normalises is all the same, as every embedder here does.
func checkConfig(folder string) error {
	text, err := readFile(folder, "config.json", maxConfig)
	if err != nil {
		return err
	}
	var config struct {
		Type string `json:"model_type"`
	}
	if err := json.Unmarshal(text, &config); err != nil {
		return fmt.Errorf("config.json: %w", err)
	}
	if config.Type != "" && config.Type != "model2vec" {
		return fmt.Errorf("config.json: model_type %.40q, want model2vec", config.Type)
	}
	return nil
}

// readFile reads a small file of a folder that may be anybody's.
func readFile(folder, name string, limit int64) ([]byte, error) {
	f, err := os.Open(filepath.Join(folder, name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, fmt.Errorf("%s is no regular file", name))
	}
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = fmt.Errorf("%s: more than %d bytes", name, limit)
	}
	return text, err
}

func (m *model) readTensors(r io.ReaderAt, size int64) error {
	header, err := safetensors.Validate(r, size, maxConfig)
	if err != nil {
		return err
	}
	shape, rows, err := tensor(header, r, "embeddings", 2)
	if err != nil {
		return err
	}
	if shape[1] < 1 || shape[1] > MaxDimensions {
		return fmt.Errorf("%d dimensions: want 1 to %d", shape[1], MaxDimensions)
	}
	for i, x := range rows {
		if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
			return fmt.Errorf("row %d of the embeddings holds %v", int64(i)/shape[1], x)
		}
	}
	m.rows, m.dimensions = rows, int(shape[1])
	tokens := m.tokenizer.Largest() + 1
	if _, ok := header.Tensor("weights"); ok {
		if shape, m.weight, err = tensor(header, r, "weights", 1); err != nil {
			return err
		}
		if shape[0] < int64(tokens) {
			return fmt.Errorf("%d weights for %d tokens", shape[0], tokens)
		}
	}
	known := len(m.rows) / m.dimensions
	if _, ok := header.Tensor("mapping"); ok {
		if m.row, err = mapping(header, r, known); err != nil {
			return err
		}
		known = len(m.row)
	}
	if known < tokens {
		return fmt.Errorf("%d rows for %d tokens", known, tokens)
	}
	return nil
}

// tensor reads numbers of any kind that models are kept in.
func tensor(header *safetensors.Header, r io.ReaderAt, name string, dimensions int) ([]int64, []float32, error) {
	t, ok := header.Tensor(name)
	if !ok {
		return nil, nil, fmt.Errorf("it has no tensor %q", name)
	}
	if len(t.Shape) != dimensions {
		return nil, nil, fmt.Errorf("%s has %d dimensions, want %d", name, len(t.Shape), dimensions)
	}
	if t.Elements() > maxModel/4 {
		return nil, nil, fmt.Errorf("%s have %d numbers (limit %d)", name, t.Elements(), maxModel/4)
	}
	read := map[safetensors.Dtype]func([]byte) float32{
		"I8":   func(b []byte) float32 { return float32(int8(b[0])) },
		"F16":  func(b []byte) float32 { return half(binary.LittleEndian.Uint16(b)) },
		"BF16": func(b []byte) float32 { return math.Float32frombits(uint32(binary.LittleEndian.Uint16(b)) << 16) },
		"F32":  func(b []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b)) },
		"F64":  func(b []byte) float32 { return float32(math.Float64frombits(binary.LittleEndian.Uint64(b))) },
	}[t.Dtype]
	if read == nil {
		return nil, nil, fmt.Errorf("%s are of type %s, want I8, F16, BF16, F32 or F64", name, t.Dtype)
	}
	values := make([]float32, t.Elements())
	if len(values) == 0 {
		return t.Shape, values, nil
	}
	size := t.Size / int64(len(values))
	err := eachPart(r, t, size, func(at int, part []byte) {
		for ; len(part) > 0; part = part[size:] {
			values[at] = read(part)
			at++
		}
	})
	return t.Shape, values, err
}

// mapping reads the row of each token, of a number of rows.
func mapping(header *safetensors.Header, r io.ReaderAt, rows int) ([]int32, error) {
	t, _ := header.Tensor("mapping")
	size := map[safetensors.Dtype]int64{"I32": 4, "I64": 8, "U32": 4, "U64": 8}[t.Dtype]
	if size == 0 || len(t.Shape) != 1 {
		return nil, fmt.Errorf("mapping is of type %s and shape %v, want one row of I32 or I64", t.Dtype, t.Shape)
	}
	list := make([]int32, t.Shape[0])
	wrong := error(nil)
	err := eachPart(r, t, size, func(at int, part []byte) {
		for ; len(part) > 0; part = part[size:] {
			row := uint64(binary.LittleEndian.Uint32(part))
			if size == 8 {
				row = binary.LittleEndian.Uint64(part)
			}
			if row >= uint64(rows) {
				wrong = fmt.Errorf("mapping: token %d has row %d of %d", at, row, rows)
				return
			}
			list[at] = int32(row)
			at++
		}
	})
	return list, errors.Join(err, wrong)
}

// eachPart reads a tensor piece by piece; at is the number of a piece's first element.
func eachPart(r io.ReaderAt, t safetensors.Tensor, size int64, call func(at int, part []byte)) error {
	const piece = 1 << 20
	buffer := make([]byte, min(piece, t.Size))
	for offset := int64(0); offset < t.Size; offset += piece {
		part := buffer[:min(piece, t.Size-offset)]
		if _, err := r.ReadAt(part, t.Offset+offset); err != nil {
			return fmt.Errorf("%s: %w", t.Name, err)
		}
		call(int(offset/size), part)
	}
	return nil
}

// half reads a float of 16 bits.
func half(b uint16) float32 {
	sign, exponent, fraction := uint32(b>>15)<<31, uint32(b>>10&31), uint32(b&1023)
	switch exponent {
	case 0:
		return float32(math.Copysign(float64(fraction)/(1<<24), float64(math.Float32frombits(sign|1))))
	case 31:
		return math.Float32frombits(sign | 255<<23 | fraction<<13)
	}
	return math.Float32frombits(sign | (exponent+112)<<23 | fraction<<13)
}

func (m *model) ID() string { return m.id }

func (m *model) Dimensions() int { return m.dimensions }

func (m *model) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	return embedEach(ctx, texts, m.vector)
}

// vector is the direction of the sum, and so of the mean.
func (m *model) vector(text string) []float32 {
	sum := make([]float64, m.dimensions)
	for _, token := range m.tokenizer.Tokens(text, maxTokens) {
		row, weight := token, float32(1)
		if m.row != nil {
			row = m.row[token]
		}
		if m.weight != nil {
			weight = m.weight[token]
		}
		for i, x := range m.rows[int(row)*m.dimensions:][:m.dimensions] {
			sum[i] += float64(x) * float64(weight)
		}
	}
	return unit(sum)
}

// unit gives a vector its length; one that has no direction is zero.
func unit(sum []float64) []float32 {
	square := 0.0
	for _, x := range sum {
		square += float64(x * x)
	}
	vector := make([]float32, len(sum))
	if length := math.Sqrt(square); length > 0 && !math.IsInf(length, 0) {
		for i, x := range sum {
			vector[i] = float32(x / length)
		}
	}
	return vector
}
