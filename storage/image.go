package storage

import (
	"fmt"
	"slices"
	"strings"
)

// Image is a picture in a message: a blob, and what its header says. In the message's text its
// Name stands in its place.
type Image struct {
	Ref
	MediaType string `json:"media_type" jsonschema:"enum=image/png,enum=image/jpeg,enum=image/gif,enum=image/webp"`
	Width     int    `json:"width" jsonschema:"minimum=1,maximum=8192"` // pixels
	Height    int    `json:"height" jsonschema:"minimum=1,maximum=8192"`
	// At is the byte of the message's text at which the image's name begins.
	At int `json:"at,omitempty" jsonschema:"minimum=0"`
}

// MediaTypes are the kinds of images that messages may have.
var MediaTypes = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

// Bounds of images: the bytes and the pixels of a side of one, and how many a prompt has.
const (
	MaxImage     = 10 << 20
	MaxImageSide = 8192
	MaxImages    = 100
)

// Name stands for the image in a text.
func (i Image) Name() string {
	return fmt.Sprintf("[%s %dx%d %.12s]", i.MediaType, i.Width, i.Height, i.SHA256)
}

// Same reports whether both are one image, wherever it stands.
func (i Image) Same(o Image) bool {
	i.At, o.At = 0, 0
	return i == o
}

func (i Image) check() error {
	if err := i.Validate(); err != nil {
		return err
	}
	switch {
	case i.Key != BlobKey(i.SHA256):
		return fmt.Errorf("%.100s is no blob", i.Key)
	case i.Size < 1 || i.Size > MaxImage:
		return fmt.Errorf("%d bytes, want 1 to %d", i.Size, MaxImage)
	case !slices.Contains(MediaTypes, i.MediaType):
		return fmt.Errorf("media type %.40q, want one of %v", i.MediaType, MediaTypes)
	case i.Width < 1 || i.Height < 1 || i.Width > MaxImageSide || i.Height > MaxImageSide:
		return fmt.Errorf("%d by %d pixels, want 1 to %d each way", i.Width, i.Height, MaxImageSide)
	}
	return nil
}

// CheckImages checks those of a message with a text, in which their names
// stand one behind the other.
func CheckImages(images []Image, text string) error {
	if err := checkImages(images); err != nil {
		return err
	}
	end := 0
	for n, i := range images {
		if i.At < end || i.At > len(text) || !strings.HasPrefix(text[i.At:], i.Name()) {
			return fmt.Errorf("images[%d]: %s does not stand at byte %d of the text, behind the one before it", n,
				i.Name(), i.At)
		}
		end = i.At + len(i.Name())
	}
	return nil
}

func checkImages(images []Image) error {
	if len(images) > MaxImages {
		return fmt.Errorf("%d images (limit %d)", len(images), MaxImages)
	}
	for n, i := range images {
		if err := i.check(); err != nil {
			return fmt.Errorf("images[%d]: %w", n, err)
		}
	}
	return nil
}

// imagesKey is the metadata of a file that has images, and the name of the column that has them.
const imagesKey = "images"

// imagesText is how files spell images; "" where there are none.
func imagesText(images []Image) (string, error) {
	if len(images) == 0 {
		return "", nil
	}
	return marshal(images)
}
