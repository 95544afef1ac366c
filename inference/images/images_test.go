package images_test

import (
	"bytes"
	"encoding/base64"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/inference/images"
	"github.com/rondo-rl/rondo/storage"
)

// webps are files of Pillow 13: 3 by 2 pixels, lossy, without loss, and in the extended form.
var webps = []string{
	"UklGRjoAAABXRUJQVlA4IC4AAADQAQCdASoDAAIAAUAmJaACdLoB+AADsAD+8iJf/KVeCxu5n/72C+7Bfdgv9bAA",
	"UklGRh4AAABXRUJQVlA4TBEAAAAvAkAAAAdQjyJXof+BiOh/AAA=",
	"UklGRlwAAABXRUJQVlA4WAoAAAAQAAAAAgAAAQAAQUxQSAcAAAAAWlpaWlpaAFZQOCAuAAAA0AEAnQEqAwACAAFAJiWgAnS6AfgAA7AA/vIiX/ylXgsbuZ/+9gvuwX3YL/WwAA==",
}

func file(t testing.TB, width, height int, encode func(io.Writer, image.Image) error) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := encode(&b, image.NewPaletted(image.Rect(0, 0, width, height),
		color.Palette{color.Black, color.White})); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func asGIF(w io.Writer, m image.Image) error  { return gif.Encode(w, m, nil) }
func asJPEG(w io.Writer, m image.Image) error { return jpeg.Encode(w, m, nil) }

func TestRead(t *testing.T) {
	files := map[string][][]byte{
		"image/png": {file(t, 3, 2, png.Encode)}, "image/gif": {file(t, 3, 2, asGIF)},
		"image/jpeg": {file(t, 3, 2, asJPEG)},
	}
	for _, text := range webps {
		data, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		files["image/webp"] = append(files["image/webp"], data)
	}
	for kind, list := range files {
		for _, data := range list {
			got, err := images.Read(data)
			digest := storage.Digest(data)
			want := storage.Image{Ref: storage.Ref{Key: storage.BlobKey(digest), SHA256: digest,
				Size: int64(len(data))}, MediaType: kind, Width: 3, Height: 2}
			if err != nil || got != want {
				t.Errorf("%s: %+v, %v; want %+v", kind, got, err, want)
			}
			if err := storage.CheckImages([]storage.Image{got}, got.Name()); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestReadRefuses: what is no image of the four kinds is none, and sides are bounded, whatever
// stands behind the header.
func TestReadRefuses(t *testing.T) {
	wide := file(t, storage.MaxImageSide, 1, png.Encode)
	if _, err := images.Read(wide); err != nil {
		t.Errorf("as wide as may be: %v", err)
	}
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"nothing":      {nil, "no image"},
		"SVG":          {[]byte(`<svg xmlns="http://www.w3.org/2000/svg"><script/></svg>`), "no image"},
		"HTML":         {[]byte("<!doctype html><script>alert(1)</script>" + strings.Repeat(" ", 40)), "no image"},
		"half a PNG":   {wide[:20], "no image"},
		"half a WebP":  {[]byte("RIFF\x00\x00\x00\x00WEBPVP8X"), "no image"},
		"a WebP chunk": {[]byte("RIFF\x00\x00\x00\x00WEBPEXIF" + strings.Repeat("\x00", 20)), "no image"},
		"no frame":     {[]byte("RIFF\x00\x00\x00\x00WEBPVP8 " + strings.Repeat("\x00", 20)), "no image"},
		"too wide":     {file(t, storage.MaxImageSide+1, 1, png.Encode), "pixels"},
		"too high":     {file(t, 1, storage.MaxImageSide+1, asJPEG), "pixels"},
		"no width": {[]byte("RIFF\x00\x00\x00\x00WEBPVP8 \x00\x00\x00\x00\x00\x00\x00\x9d\x01\x2a\x00\x00\x00\x00"),
			"pixels"},
		"too large": {append(wide, make([]byte, storage.MaxImage)...), "at most"},
	} {
		if got, err := images.Read(c.data); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %+v, %v, want %q", name, got, err, c.want)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(file(f, 3, 2, png.Encode))
	f.Add(file(f, 3, 2, asJPEG))
	f.Add([]byte("RIFF\x00\x00\x00\x00WEBPVP8X" + strings.Repeat("\x00", 20)))
	f.Fuzz(func(t *testing.T, data []byte) {
		if got, err := images.Read(data); err == nil {
			if err := storage.CheckImages([]storage.Image{got}, got.Name()); err != nil {
				t.Error(err)
			}
		}
	})
}
