package inference

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode"
)

// TestErrorAnswersAreCut: whatever a server says of a failure, little of it reaches events and
// logs, none of it does anything to a terminal, and no key is in it.
func TestErrorAnswersAreCut(t *testing.T) {
	const key = "sk-live-51HxQqTzRjY8vN3mWc7Lp0Ad"
	const other = "ghp_16C7e42F292c6912E7710c838347Ae178B4a" // of somebody else
	handlers := map[string]http.HandlerFunc{
		"the key": answer(401, "Incorrect API key provided: "+key),
		"the key in JSON": answer(401, `{"error":{"message":"Incorrect API key provided: `+
			strings.ReplaceAll(key, "-", `\u002d`)+`"}}`),
		"the key where it is cut":  answer(500, strings.Repeat("x", maxBody-10)+key),
		"the key behind much":      answer(500, strings.Repeat("x", maxReason-8)+key+strings.Repeat("y", 100)),
		"another's key":            answer(500, "upstream refused the token "+other),
		"control characters":       answer(400, "\x1b]0;title\x07\x1b[2Jbad\u202e request\r\n\x00"),
		"much":                     answer(500, strings.Repeat("no ", 1<<20)),
		"a prompt":                 answer(400, "line\n"+strings.Repeat("what the user asked\n", 100)),
		"no JSON where it is due":  answer(200, "\x1b[2J"+key),
		"a long number":            answer(200, `{"choices": `+strings.Repeat("9", 10000)+`}`),
		"a redirection to secrets": redirect("http://example.com/" + key + strings.Repeat("z", 10000)),
		"a list of details":        answer(422, `{"detail":[{"msg":"x"}]}`),
		"no HTTP": func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				fmt.Fprintf(conn, "\x1b[2J %s %s\r\n\r\n", key, strings.Repeat("z", 3000))
				conn.Close()
			}
		},
		"a status of its own": func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				fmt.Fprintf(conn, "HTTP/1.1 500 %s\x1b[2J\r\nContent-Length: 0\r\n\r\n", key)
				conn.Close()
			}
		},
	}
	for name, handler := range handlers {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(handler)
			defer server.Close()
			client := Client{HTTP: &http.Client{CheckRedirect: func(*http.Request,
				[]*http.Request) error {
				return http.ErrUseLastResponse
			}}, APIKey: key}
			_, err := client.Complete(t.Context(), server.URL, Request{})
			if err == nil {
				t.Fatal("no error")
			}
			text := err.Error()
			if len([]rune(text)) > maxError+1 {
				t.Errorf("%d characters", len([]rune(text)))
			}
			for _, secret := range []string{key, key[:8], other, other[:12], "what the user"} {
				if strings.Contains(text, secret) {
					t.Errorf("%q is in %q", secret, text)
				}
			}
			if i := strings.IndexFunc(text, func(r rune) bool { return r != ' ' && !unicode.IsPrint(r) }); i >= 0 {
				t.Errorf("%q has control characters", text)
			}
		})
	}
}

// TestReason: of what servers say, the message is told.
func TestReason(t *testing.T) {
	for body, want := range map[string]string{
		`{"error":{"message":"context length is 4096","code":400}}`: `answered 400 Bad Request: "context length is 4096"`,
		`{"error":"model not found"}`:                               `answered 400 Bad Request: "model not found"`,
		`{"detail":"Not Found"}`:                                    `answered 400 Bad Request: "Not Found"`,
		`{"object":"error","message":"too long"}`:                   `answered 400 Bad Request: "too long"`,
		"plain text\nsecond line":                                   `answered 400 Bad Request: "plain text"`,
		"1 validation error:\n  what is wrong\nthird line":          `answered 400 Bad Request: "1 validation error: what is wrong"`,
		"": "answered 400 Bad Request",
	} {
		t.Run(body, func(t *testing.T) {
			server := httptest.NewServer(answer(400, body))
			_, err := (&Client{HTTP: server.Client()}).Complete(t.Context(), server.URL, Request{})
			server.Close()
			if err == nil || !strings.HasSuffix(err.Error(), want) {
				t.Errorf("%s: %v, want %s", body, err, want)
			}
		})
	}
}

func answer(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = w.Write([]byte(body))
	}
}

func redirect(to string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to, http.StatusTemporaryRedirect) }
}
