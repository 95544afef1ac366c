package vocabulary

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// filtered are the words for a prompt, or an answer, that a filter of contents refuses: Azure,
// OpenAI, DashScope, Gemini, Bedrock, OpenRouter.
var filtered = regexp.MustCompile(`content_?(filter|policy)|content management policy|data_?inspection_?failed|inappropriate content|responsibleaipolicy|` +
	`\bmoderation|safety (system|policy|filter|settings)|prohibited_content|sensitive (content|words?|information)|\bflagged\b|guardrail|` +
	`usage polic(y|ies)|policy_?violation|\b(unsafe|harmful) content|敏感|违规`)

// Filtered reports whether an error answer says that a filter refuses what the request holds.
func Filtered(status int, body []byte) bool {
	switch status {
	case http.StatusBadRequest, http.StatusForbidden, http.StatusUnprocessableEntity,
		http.StatusUnavailableForLegalReasons:
		return filtered.MatchString(strings.ToLower(string(body)))
	}
	return false
}

// mostErrorBody is how long a body may be that is an error, in bytes.
const mostErrorBody = 1 << 20

// ErrorBody is the status that an answer stands for which came with a status of success and is an
// error: a body in the form of one, alone, in a list, or as an event of a stream. said is the JSON
// of it; status is 0 for an answer that is none.
func ErrorBody(text []byte) (status int, said []byte) {
	text = bytes.TrimSpace(text)
	if len(text) > mostErrorBody || len(text) == 0 {
		return 0, nil
	}
	if text[0] == '{' || text[0] == '[' {
		return errorIn(text)
	}
	failed := false
	for line := range bytes.Lines(text) { // a stream that nobody asked for
		name, data, _ := bytes.Cut(line, []byte(":"))
		data = bytes.TrimSpace(data)
		switch string(bytes.TrimSpace(name)) {
		case "event":
			failed = string(data) == "error"
		case "data", "error":
			if status, said := errorIn(data); status > 0 {
				return status, said
			}
			if failed {
				return http.StatusInternalServerError, data
			}
		}
	}
	return 0, nil
}

// errorForm are the forms of errors: OpenAI's and Google's error, Anthropic's type, older
// vLLM's and SGLang's object, FastAPI's detail, and those of gateways whose status of HTTP
// is always that of success.
type errorForm struct {
	Error   json.RawMessage `json:"error"`
	Kind    string          `json:"error_type"` // TGI
	Object  string          `json:"object"`
	Type    string          `json:"type"`
	Message json.RawMessage `json:"message"`
	Detail  json.RawMessage `json:"detail"`
	Code    json.RawMessage `json:"code"`
	Status  json.RawMessage `json:"status"`
	Choices json.RawMessage `json:"choices"`
	Errors  json.RawMessage `json:"errors"`     // Cloudflare
	Number  json.RawMessage `json:"error_code"` // Baidu
	Said    json.RawMessage `json:"errorMessage"`
	Fault   json.RawMessage `json:"fault"` // Apigee
	Title   string          `json:"title"` // RFC 9457, with a status
	Success *bool           `json:"success"`
	Base    struct {        // MiniMax
		Code json.RawMessage `json:"status_code"`
	} `json:"base_resp"`
	Response struct { // Tencent
		Error json.RawMessage `json:"Error"`
	} `json:"Response"`
}

// choiceError is the error of the first choice, where a gateway says it
// beside a turn that broke off.
func (f *errorForm) choiceError() json.RawMessage {
	var choices [1]struct {
		Error json.RawMessage `json:"error"`
	}
	if bytes.Contains(f.Choices, []byte(`"error"`)) {
		_ = json.Unmarshal(f.Choices, &choices) // what cannot be read is no answer, which its reader says
	}
	return choices[0].Error
}

// failed reports whether the form is one of an error.
func (f *errorForm) failed(text []byte) bool {
	if there(f.Error) || there(f.choiceError()) || f.Object == "error" || f.Type == "error" || there(f.Base.Code) {
		return true
	}
	if answer := f.Choices != nil && string(f.Choices) != "null" || f.Object != ""; answer {
		return false
	}
	causes := []json.RawMessage{f.Detail, f.Errors, f.Number, f.Said, f.Fault, f.Response.Error}
	if slices.ContainsFunc(causes, there) || f.Success != nil && !*f.Success {
		return true
	}
	if there(f.Code) || there(f.Status) {
		return there(f.Message) || f.Title != ""
	}
	return there(f.Message) && (OverflowOf(http.StatusBadRequest, text) != nil || Filtered(http.StatusBadRequest, text))
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
	err := json.Unmarshal(text, &form)
	_, odd := errors.AsType[*json.UnmarshalTypeError](err) // a field of another type is no field of an error
	if err != nil && !odd || !form.failed(text) {
		return 0, nil
	}
	inner := form
	for _, said := range []json.RawMessage{form.Error, form.choiceError()} {
		_ = json.Unmarshal(said, &inner) // a text has no more to say
	}
	return statusOf(inner, form, text), text
}

// there reports whether a field says something: null, false and empty values do not,
// nor does an object of them.
func there(raw json.RawMessage) bool {
	switch string(raw) {
	case "", "null", "false", `""`, "{}", "[]", "0":
		return false
	}
	var fields map[string]json.RawMessage
	if raw[0] != '{' || json.Unmarshal(raw, &fields) != nil {
		return true
	}
	for _, field := range fields {
		switch string(field) {
		case "null", "false", `""`, "{}", "[]", "0":
		default:
			return true
		}
	}
	return false
}

// statuses are those that words of an error stand for; the first one that is found counts.
var statuses = []struct {
	words  *regexp.Regexp
	status int
}{
	{regexp.MustCompile(`rate_?limit|too_?many_?requests|resource_?exhausted|insufficient_quota|quota`),
		http.StatusTooManyRequests},
	{regexp.MustCompile(`overloaded|unavailable|not_ready|loading`), http.StatusServiceUnavailable},
	{regexp.MustCompile(`authentication|unauthenticated|unauthorized|invalid_api_key`), http.StatusUnauthorized},
	{regexp.MustCompile(`permission|forbidden`), http.StatusForbidden},
	{regexp.MustCompile(`not_?found`), http.StatusNotFound},
	{regexp.MustCompile(`too_?large`), http.StatusRequestEntityTooLarge},
	{regexp.MustCompile(`bad_?request|invalid_?(request|argument|parameter|prompt)|value_?error|validation|context|content_?(filter|policy)|unprocessable`),
		http.StatusBadRequest},
}

// statusOf is the status of HTTP that an error would have come with; 500 where it does not say.
func statusOf(inner, outer errorForm, text []byte) int {
	for _, raw := range []json.RawMessage{inner.Code, inner.Status, outer.Code, outer.Status} {
		if n, err := strconv.Atoi(strings.Trim(string(raw), `"`)); err == nil && n >= 400 && n < 600 {
			return n
		}
	}
	names := strings.ToLower(strings.Join([]string{inner.Type, outer.Kind, string(inner.Code), string(inner.Status),
		string(outer.Code), string(outer.Status)}, " "))
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
