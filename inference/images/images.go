// Package images reads what the header of an image says, and nothing behind it.
package images

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"image"
	_ "image/gif" // the formats that are known by their headers
	_ "image/jpeg"
	_ "image/png"
	"slices"
	"strings"

	"github.com/rondo-rl/rondo/storage"
)

// Read describes an image as the blob that it will be. It is what its header
// says, whatever it was called.
func Read(data []byte) (storage.Image, error) {
	if len(data) > storage.MaxImage {
		return storage.Image{}, fmt.Errorf("an image of %d bytes, at most %d", len(data), storage.MaxImage)
	}
	kind, width, height, err := header(data)
	switch {
	case err != nil:
		return storage.Image{}, err
	case width < 1 || height < 1 || width > storage.MaxImageSide || height > storage.MaxImageSide:
		return storage.Image{}, fmt.Errorf("an image of %d by %d pixels, want 1 to %d each way", width,
			height, storage.MaxImageSide)
	}
	digest := storage.Digest(data)
	return storage.Image{
		Ref:       storage.Ref{Key: storage.BlobKey(digest), SHA256: digest, Size: int64(len(data))},
		MediaType: "image/" + kind, Width: width, Height: height,
	}, nil
}

func header(data []byte) (kind string, width, height int, err error) {
	if kind, width, height, ok := webp(data); ok {
		return kind, width, height, nil
	}
	said, kind, err := image.DecodeConfig(bytes.NewReader(data))
	if err != nil || !slices.Contains(storage.MediaTypes, "image/"+kind) {
		return "", 0, 0, fmt.Errorf("no image that is known by its header: want %s",
			strings.Join(storage.MediaTypes, ", "))
	}
	return kind, said.Width, said.Height, nil
}

// webp reads the header of a WebP file, which is the first of its chunks.
func webp(data []byte) (kind string, width, height int, ok bool) {
	if len(data) < 30 || string(data[:4]) != "RIFF" || string(data[8:12]) != "WEBP" {
		return "", 0, 0, false
	}
	bits := binary.LittleEndian.Uint32
	switch body := data[20:30]; string(data[12:16]) {
	case "VP8 ": // a key frame has its size behind three bytes and a start code
		if string(body[3:6]) != "\x9d\x01\x2a" {
			return "", 0, 0, false
		}
		size := bits(body[6:])
		width, height = int(size&0x3fff), int(size>>16&0x3fff)
	case "VP8L":
		if body[0] != 0x2f {
			return "", 0, 0, false
		}
		size := bits(body[1:])
		width, height = int(size&0x3fff)+1, int(size>>14&0x3fff)+1
	case "VP8X": // two times 24 bits
		width, height = int(bits(body[4:])&0xffffff)+1, int(bits(body[6:])>>8)+1
	default:
		return "", 0, 0, false
	}
	return "webp", width, height, true
}
