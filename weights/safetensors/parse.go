package safetensors

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"
)

const metadataKey = "__metadata__"

// parseHeader reads {"name": {"dtype": …, "shape": […], "data_offsets": [begin, end]}, …,
// "__metadata__": {"key": "value"}}, with tensors' offsets still counted from the end of the
// header. Where JSON parsers differ (keys that appear twice, other letters in a key, values in
// place of arrays), the header is refused: another reader might see another file.
func parseHeader(text []byte) (*Header, error) {
	if len(text) == 0 || text[0] != '{' {
		return nil, errors.New("it does not begin with {")
	}
	if !utf8.Valid(text) {
		return nil, errors.New("it is not UTF-8")
	}
	h := &Header{}
	decoder := json.NewDecoder(bytes.NewReader(text))
	err := object(decoder, func(name string) error {
		if name == metadataKey {
			return h.parseMetadata(decoder)
		}
		if len(h.Tensors) == maxTensors {
			return fmt.Errorf("more than %d tensors", maxTensors)
		}
		t, err := parseTensor(decoder, name)
		if err != nil {
			return fmt.Errorf("tensor %.80q: %w", name, err)
		}
		h.Tensors = append(h.Tensors, t)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if rest := text[decoder.InputOffset():]; len(bytes.Trim(rest, " ")) > 0 {
		return nil, fmt.Errorf("%d bytes after its end that are not spaces", len(rest))
	}
	return h, nil
}

func (h *Header) parseMetadata(decoder *json.Decoder) error {
	h.Metadata = map[string]string{}
	return object(decoder, func(key string) error {
		value, err := decode[*string](decoder)
		if err != nil || value == nil {
			return fmt.Errorf("%s: the value of %.80q is not a text", metadataKey, key)
		}
		h.Metadata[key] = *value
		return nil
	})
}

func parseTensor(decoder *json.Decoder, name string) (Tensor, error) {
	if len(name) > maxName {
		return Tensor{}, fmt.Errorf("a name of %d bytes (limit %d)", len(name), maxName)
	}
	t := Tensor{Name: name}
	var offsets []int64
	seen := 0
	err := object(decoder, func(key string) (err error) {
		seen++
		switch key {
		case "dtype":
			t.Dtype, err = decode[Dtype](decoder)
		case "shape":
			t.Shape, err = integers(decoder, maxDimensions)
		case "data_offsets":
			offsets, err = integers(decoder, 2)
		default:
			err = errors.New("unknown")
		}
		if err != nil {
			return fmt.Errorf("%.40s: %w", key, err)
		}
		return nil
	})
	switch {
	case err != nil:
		return Tensor{}, err
	case seen != 3:
		return Tensor{}, errors.New("dtype, shape or data_offsets is missing")
	case len(offsets) != 2 || offsets[0] < 0 || offsets[1] < offsets[0]:
		return Tensor{}, fmt.Errorf("data_offsets %v are not a range", offsets)
	}
	t.Offset, t.Size = offsets[0], offsets[1]-offsets[0]
	return t, nil
}

// object reads a JSON object; value reads the value of each key. A key must not appear twice.
func object(decoder *json.Decoder, value func(key string) error) error {
	if err := expect(decoder, json.Delim('{')); err != nil {
		return err
	}
	seen := map[string]bool{}
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return plain(err)
		}
		key, ok := token.(string)
		if !ok || seen[key] {
			return fmt.Errorf("the key %.80q appears twice", fmt.Sprint(token))
		}
		seen[key] = true
		if err := value(key); err != nil {
			return err
		}
	}
	return expect(decoder, json.Delim('}'))
}

// integers reads an array of at most limit whole numbers, written as such.
func integers(decoder *json.Decoder, limit int) ([]int64, error) {
	// Raw, since the decoder would take a null for 0 and a text for a number.
	numbers, err := decode[[]json.RawMessage](decoder)
	if err != nil {
		return nil, err
	}
	if numbers == nil || len(numbers) > limit {
		return nil, fmt.Errorf("not an array of at most %d numbers", limit)
	}
	values := make([]int64, len(numbers))
	for i, number := range numbers {
		value, err := strconv.ParseUint(string(number), 10, 63)
		if err != nil {
			return nil, fmt.Errorf("%.40q is not a size", number)
		}
		values[i] = int64(value)
	}
	return values, nil
}

func decode[T any](decoder *json.Decoder) (T, error) {
	var value T
	err := decoder.Decode(&value)
	return value, plain(err)
}

func expect(decoder *json.Decoder, want json.Delim) error {
	token, err := decoder.Token()
	if err != nil {
		return plain(err)
	}
	if token != want {
		return fmt.Errorf("%.40q in place of %v", fmt.Sprint(token), want)
	}
	return nil
}

// plain says of a text that ends too early that it does.
func plain(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the JSON text ends too early")
	}
	return err
}
