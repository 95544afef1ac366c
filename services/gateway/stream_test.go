package gateway

import (
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/services/gateway/dialects"
)

// TestStreamsThatSayOtherwise end with an error, by which a client knows that it has no answer.
func TestStreamsThatSayOtherwise(t *testing.T) {
	said := httptest.NewRecorder()
	w, a := newStream(said), &ask{Request: &dialects.Request{Stream: true}}
	n := &dialects.Answer{ID: "r.x-1"}
	n.Turn.Content = "ab"
	w.tells(dialects.Chat{}, a, n).Say("abc")
	var r *refusal
	if err := give(w, dialects.Chat{}, a, n); !errors.As(err, &r) {
		t.Fatal(err)
	}
	tell(w, dialects.Chat{}, r)
	if text := said.Body.String(); strings.Contains(text, "[DONE]") ||
		!strings.Contains(text, `{"error":{"code":"bad_response"`) || !strings.Contains(text, "r.x-1") {
		t.Error(text)
	}
}
