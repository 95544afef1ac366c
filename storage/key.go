package storage

import (
	"fmt"
	"strings"
)

const (
	// MaxKey is the length limit of a key in bytes; an S3 prefix of the bucket still
	// fits S3's own limit of 1024.
	MaxKey = 512
	// maxSegment leaves room for a directory store's own suffixes within the
	// 255 bytes of a file name.
	maxSegment = 200
)

// ValidateKey checks that a key is slash-separated segments of letters, digits and ._@=+- with at
// most 512 bytes in all and 200 in a segment. A segment is not empty and does not begin with a dot:
// those names belong to the implementations. The error is an ErrKey.
func ValidateKey(key string) error {
	if key == "" {
		return fmt.Errorf("%w: it is empty", ErrKey)
	}
	if len(key) > MaxKey {
		return fmt.Errorf("%w: %q… has %d bytes (limit %d)", ErrKey, key[:64], len(key), MaxKey)
	}
	for segment := range strings.SplitSeq(key, "/") {
		if err := validateSegment(segment); err != nil {
			return fmt.Errorf("%w: %q: %v", ErrKey, key, err)
		}
	}
	return nil
}

// ValidatePrefix checks a prefix for List: empty, or the beginning of a valid key.
func ValidatePrefix(prefix string) error {
	trimmed := strings.TrimSuffix(prefix, "/")
	if trimmed == "" && prefix == "" {
		return nil
	}
	return ValidateKey(trimmed)
}

func validateSegment(segment string) error {
	switch {
	case segment == "":
		return fmt.Errorf("a segment is empty")
	case segment[0] == '.':
		return fmt.Errorf("segment %q begins with a dot", segment)
	case len(segment) > maxSegment:
		return fmt.Errorf("segment %q… has %d bytes (limit %d)", segment[:32], len(segment), maxSegment)
	}
	for i := range len(segment) {
		if !keyByte(segment[i]) {
			return fmt.Errorf("byte %q is not allowed (letters, digits and ._@=+-)", segment[i])
		}
	}
	return nil
}

func keyByte(c byte) bool {
	switch {
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		return true
	}
	return strings.IndexByte("._@=+-", c) >= 0
}
