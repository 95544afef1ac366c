package inference

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
	"unicode"

	"github.com/rondo-rl/rondo/redact"
	"github.com/rondo-rl/rondo/wording"
)

// What a server says of its failures reaches events, logs and errors, and the server is not
// trusted: it may repeat keys and prompts, or write what moves a terminal's cursor.
const (
	maxBody   = 16 << 10 // bytes of an error answer that are looked at
	maxReason = 160      // characters of it that are repeated
	maxError  = 600      // characters of an error's whole text
)

// errorBodyTime bounds how long a server may take over the body of an error answer.
const errorBodyTime = 5 * time.Second

// errorBody is the beginning of an error answer.
func errorBody(resp *http.Response) []byte {
	stop := time.AfterFunc(errorBodyTime, func() { resp.Body.Close() })
	defer stop.Stop()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxBody)) // what came of it is enough
	return body
}

// reasonOf is the reason that the body of an error answer gives, quoted and short, without keys
// and secrets; "" where it gives none. A body in the form of OpenAI's errors is read for its
// message. The first line counts, and where it ends with a colon, as of vLLM's validation
// errors, the next one, too.
func reasonOf(ctx context.Context, body []byte, key string) string {
	text := string(body)
	var form struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
		Detail  json.RawMessage `json:"detail"`
	}
	if json.Unmarshal(body, &form) == nil {
		text = form.Message
		for _, field := range []json.RawMessage{form.Error, form.Detail} {
			if said := messageIn(field); text == "" {
				text = said
			}
		}
	}
	// Secrets are taken out of the whole text: a cut would leave the beginning of one that
	// nobody recognises any more.
	text = withoutKey(text, key)
	if found, err := redact.Find(ctx, text); err == nil {
		text = redact.Mask(text, found)
	} else {
		return "" // unknown is not safe
	}
	text = strings.TrimSpace(text)
	text, rest, _ := strings.Cut(text, "\n")
	if text = strings.TrimSpace(text); strings.HasSuffix(text, ":") {
		line, _, _ := strings.Cut(strings.TrimSpace(rest), "\n")
		text = strings.TrimSpace(text + " " + line)
	}
	if text == "" {
		return ""
	}
	return fmt.Sprintf("%q", cut(printable(text), maxReason))
}

// messageIn is the message of an error's field, which is a text or an object with one.
func messageIn(field json.RawMessage) string {
	var text string
	if json.Unmarshal(field, &text) == nil {
		return text
	}
	var object struct {
		Message string `json:"message"`
	}
	_ = json.Unmarshal(field, &object) // a list, as FastAPI's, has none
	return object.Message
}

// withoutKey takes a key and what else this process knows out of a text, also where it is escaped
// or encoded, and the beginning of one that the text's end cuts off.
func withoutKey(text, key string) string {
	text = wording.Clean(text)
	if key == "" {
		return text
	}
	for _, form := range wording.Forms(key) {
		text = strings.ReplaceAll(text, form, "[redacted]")
	}
	for n := min(len(key)-1, len(text)); n >= 4; n-- {
		if strings.HasSuffix(text, key[:n]) {
			return text[:len(text)-n] + "[redacted]"
		}
	}
	return text
}

// printable leaves out what does something to a terminal or hides from the eye.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r == ' ' || unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}

// cut shortens a text to a number of characters.
func cut(text string, most int) string {
	for i := range text {
		if most--; most < 0 {
			return text[:i] + "…"
		}
	}
	return text
}

// shownError is an error whose text is short, printable and without the key.
type shownError struct {
	text string
	err  error
}

func (e *shownError) Error() string { return e.text }
func (e *shownError) Unwrap() error { return e.err }

// redactError makes an error fit for events and logs. Errors of the network and of JSON repeat
// what a server has sent, too.
func redactError(err error, key string) error {
	err = wording.Plain(err)
	text := cut(printable(withoutKey(err.Error(), key)), maxError)
	if text == err.Error() {
		return err
	}
	return &shownError{text, err}
}
