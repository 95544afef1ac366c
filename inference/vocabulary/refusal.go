package vocabulary

import (
	"bytes"
	"encoding/json"
	"net/http"
	"regexp"
	"strconv"
	"strings"
)

// filtered are the words for a prompt, or an answer, that a filter of contents refuses: Azure, OpenAI, DashScope, Gemini, Bedrock, OpenRouter.
var filtered = regexp.MustCompile(`content_?(filter|policy)|content management policy|data_?inspection_?failed|inappropriate content|responsibleaipolicy|` +
	`\bmoderation|safety (system|policy|filter|settings)|prohibited_content|sensitive (content|words?|information)|\bflagged\b|guardrail`)

// Filtered reports whether an error answer says that a filter refuses what the request holds.
func Filtered(status int, body []byte) bool {
	switch status {
	case http.StatusBadRequest, http.StatusForbidden, http.StatusUnprocessableEntity, http.StatusUnavailableForLegalReasons:
		return filtered.MatchString(strings.ToLower(string(body)))
	}
	return false
}

// mostErrorBody is how long a body may be that is an error, in bytes.
const mostErrorBody = 1 << 20

// ErrorBody is the status that an answer stands for which came with a status of success and is an error: a body in the form of one, alone, in a list, or as an event of a
// stream. said is the JSON of it; status is 0 for an answer that is none.
func ErrorBody(text []byte) (status int, said []byte) {
	text = bytes.TrimSpace(text)
	if len(text) > mostErrorBody || len(text) == 0 {
		return 0, nil
	}
	if text[0] == '{' || text[0] == '[' {
		return errorIn(text)
	}
	for line := range bytes.Lines(text) { // a stream that nobody asked for
		field, data, _ := bytes.Cut(line, []byte(":"))
		if name := string(bytes.TrimSpace(field)); name != "data" && name != "error" {
			continue
		}
		if status, said := errorIn(bytes.TrimSpace(data)); status > 0 {
			return status, said
		}
	}
	return 0, nil
}

// errorForm are the forms of errors: OpenAI's and Google's error, Anthropic's type, older vLLM's and SGLang's object, FastAPI's detail.
type errorForm struct {
	Error   json.RawMessage `json:"error"`
	Object  string          `json:"object"`
	Type    string          `json:"type"`
	Message json.RawMessage `json:"message"`
	Detail  json.RawMessage `json:"detail"`
	Code    json.RawMessage `json:"code"`
	Status  json.RawMessage `json:"status"`
	Choices json.RawMessage `json:"choices"`
}

func errorIn(text []byte) (status int, said []byte) {
	if len(text) > 0 && text[0] == '[' {
		var list []json.RawMessage
		if json.Unmarshal(text, &list) != nil || len(list) == 0 {
			return 0, nil
		}
		text = list[0]
	}
	var form errorForm
	if json.Unmarshal(text, &form) != nil {
		return 0, nil
	}
	failed := there(form.Error) || form.Object == "error" || form.Type == "error"
	if answer := form.Choices != nil || form.Object != ""; !answer {
		failed = failed || there(form.Detail) || there(form.Message) && (there(form.Code) || there(form.Status))
	}
	if !failed {
		return 0, nil
	}
	inner := form
	_ = json.Unmarshal(form.Error, &inner) // a text has no more to say
	return statusOf(inner, form, text), text
}

// there reports whether a field says something: null, false and empty values do not.
func there(raw json.RawMessage) bool {
	switch string(raw) {
	case "", "null", "false", `""`, "{}", "[]", "0":
		return false
	}
	return true
}

// statuses are those that words of an error stand for; the first one that is found counts.
var statuses = []struct {
	words  *regexp.Regexp
	status int
}{
	{regexp.MustCompile(`rate_?limit|too_?many_?requests|resource_?exhausted|insufficient_quota|quota`), http.StatusTooManyRequests},
	{regexp.MustCompile(`overloaded|unavailable|not_ready|loading`), http.StatusServiceUnavailable},
	{regexp.MustCompile(`authentication|unauthenticated|unauthorized|invalid_api_key`), http.StatusUnauthorized},
	{regexp.MustCompile(`permission|forbidden`), http.StatusForbidden},
	{regexp.MustCompile(`not_?found`), http.StatusNotFound},
	{regexp.MustCompile(`too_?large`), http.StatusRequestEntityTooLarge},
	{regexp.MustCompile(`bad_?request|invalid_?(request|argument|parameter|prompt)|value_?error|validation|context|content_?(filter|policy)|unprocessable`), http.StatusBadRequest},
}

// statusOf is the status of HTTP that an error would have come with; 500 where it does not say.
func statusOf(inner, outer errorForm, text []byte) int {
	for _, raw := range []json.RawMessage{inner.Code, inner.Status, outer.Code, outer.Status} {
		if n, err := strconv.Atoi(strings.Trim(string(raw), `"`)); err == nil && n >= 400 && n < 600 {
			return n
		}
	}
	names := strings.ToLower(strings.Join([]string{inner.Type, string(inner.Code), string(inner.Status), string(outer.Code), string(outer.Status)}, " "))
	for _, s := range statuses {
		if s.words.MatchString(names) {
			return s.status
		}
	}
	if OverflowOf(http.StatusBadRequest, text) != nil || Filtered(http.StatusBadRequest, text) {
		return http.StatusBadRequest
	}
	return http.StatusInternalServerError
}
