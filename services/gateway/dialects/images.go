package dialects

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rondo-rl/rondo/inference/images"
	"github.com/rondo-rl/rondo/services/gateway/fields"
	"github.com/rondo-rl/rondo/storage"
)

// maxPixels bounds those of all images of a request, which an inference server
// may have in memory at once.
const maxPixels = 256 << 20

// gallery are the images of a request, by their digests.
type gallery struct {
	files  map[string][]byte
	count  int
	pixels int
}

// content is what a message says.
type content struct {
	// text has the names of the images in their places.
	text   string
	images []storage.Image
	// parts are a chat's: text and images, as these are. A text alone has none.
	parts []any
}

// words make a content part by part.
type words struct {
	text   strings.Builder
	images []storage.Image
	parts  []any
}

type (
	textPart struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	imagePart struct {
		Type     string   `json:"type"`
		ImageURL imageURL `json:"image_url"`
	}
	imageURL struct {
		URL string `json:"url"`
	}
	thinkingPart struct {
		Type     string `json:"type"`
		Thinking string `json:"thinking"`
		Closed   *bool  `json:"closed,omitempty"`
	}
)

func (w *words) say(text string) {
	if text == "" {
		return
	}
	w.text.WriteString(text)
	w.parts = append(w.parts, textPart{"text", text})
}

// show puts an image behind what was said. Whatever the client has called it,
// the server gets what it is.
func (w *words) show(i storage.Image, data []byte) {
	i.At = w.text.Len()
	w.images = append(w.images, i)
	w.text.WriteString(i.Name())
	w.parts = append(w.parts, imagePart{"image_url", imageURL{"data:" + i.MediaType + ";base64," +
		base64.StdEncoding.EncodeToString(data)}})
}

func (w *words) content() content {
	c := content{text: w.text.String(), images: w.images}
	if len(w.images) > 0 {
		c.parts = w.parts
	}
	return c
}

// take takes an image in, whose bytes are in Base64: the usual or that of URLs, padded or not.
func (g *gallery) take(w *words, text string) error {
	if g.count++; g.count > storage.MaxImages {
		return fmt.Errorf("the request has more than %d images", storage.MaxImages)
	}
	data, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(usual.Replace(text), "=\r\n"))
	if err != nil {
		return errors.New("the image is no Base64")
	}
	i, err := images.Read(data)
	if err != nil {
		return err
	}
	if g.pixels += i.Width * i.Height; g.pixels > maxPixels {
		return fmt.Errorf("the images of the request have more than %d pixels together", maxPixels)
	}
	if g.files == nil {
		g.files = map[string][]byte{}
	}
	g.files[i.SHA256] = data
	w.show(i, data)
	return nil
}

var usual = strings.NewReplacer("-", "+", "_", "/")

// takeURL takes the image in that a data URL holds. What another address shows may be
// something else tomorrow.
func (g *gallery) takeURL(w *words, url string) error {
	scheme, rest, _ := strings.Cut(url, ":")
	head, data, found := strings.Cut(rest, ",")
	switch {
	case !strings.EqualFold(scheme, "data"):
		return fmt.Errorf("the address of an image has the scheme %.20q: give the image itself, in a data URL, since nothing fixes what another address shows", scheme)
	case !found || !strings.HasSuffix(strings.ToLower(head), ";base64"):
		return errors.New("a data URL: want data:MEDIA-TYPE;base64,DATA")
	}
	return g.take(w, data)
}

// takePart takes an image in as OpenAI's dialects write it: image_url holds the URL,
// in chats within an object.
func (g *gallery) takePart(w *words, url json.RawMessage, fileID string) error {
	var text string
	var object imageURL
	switch {
	case fileID != "":
		return errors.New("file_id: the gateway keeps no files; give the image itself, in a data URL")
	case json.Unmarshal(url, &text) == nil:
	case json.Unmarshal(url, &object) == nil:
		if err := fields.Exact(url, "url"); err != nil {
			return fmt.Errorf("image_url: %w", err)
		}
		text = object.URL
	default:
		return errors.New("image_url: want a URL")
	}
	return g.takeURL(w, text)
}

// imageParts are the images in contents, in one of OpenAI's dialects or the other.
var imageParts = []string{"image_url", "input_image"}

// partKeys are those of a part that are read.
var partKeys = []string{"type", "text", "refusal", "thinking", "closed", "image_url", "file_id"}

// content is ContentText with images.
func (g *gallery) content(raw json.RawMessage) (content, error) {
	c, err := g.said("user", raw)
	if len(c.images) == 0 {
		c.parts = nil
	}
	return c, err
}

// pictured reports whether messages of a role may have images: those that say something to the
// model. Others may have thoughts.
func pictured(role string) bool { return role == "user" || role == "tool" }

// said is what a message of a role says. Its parts are written anew, so that nothing
// goes on that was not read.
func (g *gallery) said(role string, raw json.RawMessage) (content, error) {
	var list []json.RawMessage
	if len(raw) == 0 || raw[0] != '[' || json.Unmarshal(raw, &list) != nil {
		text, err := ContentText(raw)
		return content{text: text}, err
	}
	var w words
	for i, raw := range list {
		if err := g.part(&w, raw, pictured(role)); err != nil {
			return content{}, fmt.Errorf("content[%d]: %w", i, err)
		}
	}
	if w.parts == nil {
		w.parts = []any{textPart{Type: "text"}}
	}
	return content{w.text.String(), w.images, w.parts}, nil
}

// part reads a part of a content. It is a text, or in some messages an image, in others a thought.
func (g *gallery) part(w *words, raw json.RawMessage, pictured bool) error {
	if err := fields.Exact(raw, partKeys...); err != nil {
		return err
	}
	var p struct {
		Type     string          `json:"type"`
		Text     string          `json:"text"`
		Refusal  string          `json:"refusal"`
		Thinking json.RawMessage `json:"thinking"`
		Closed   *bool           `json:"closed"`
		ImageURL json.RawMessage `json:"image_url"`
		FileID   string          `json:"file_id"`
	}
	if err := json.Unmarshal(raw, &p); err != nil {
		return errors.New("want a part: an object with a type")
	}
	switch {
	case slices.Contains(textParts, p.Type):
		w.say(p.Text)
	case p.Type == "refusal":
		w.say(p.Refusal)
	case slices.Contains(imageParts, p.Type) && pictured:
		return g.takePart(w, p.ImageURL, p.FileID)
	case p.Type == "thinking" && !pictured:
		thought, err := ContentText(p.Thinking)
		if err != nil {
			return fmt.Errorf("thinking: %w", err)
		}
		w.text.WriteString("[thinking]")
		w.parts = append(w.parts, thinkingPart{"thinking", thought, p.Closed})
	default:
		return fmt.Errorf("a part of type %.40q cannot be carried: give text%s", p.Type,
			map[bool]string{true: " or images"}[pictured])
	}
	return nil
}
