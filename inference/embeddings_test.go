package inference

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestVectorsAreNumbers: an element that is no number, as servers in half precision answer, is an
// error and not 0. A mark of the order of bytes is none of the answer.
func TestVectorsAreNumbers(t *testing.T) {
	for body, want := range map[string]string{
		`[1, 0.5]`:  "",
		`[1, null]`: "element 1 of a vector is no number",
		`[NaN, 1]`:  "element 0 of a vector is no number",
		`null`:      "vectors of 0 and 0 dimensions",
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "\ufeff"+`{"data":[{"index":0,"embedding":`+body+`}]}`)
		}))
		c := Client{HTTP: server.Client()}
		_, err := c.Embed(t.Context(), server.URL, EmbeddingRequest{Model: "m", Input: []string{"a"}})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", body, err, want)
		}
		server.Close()
	}
}
