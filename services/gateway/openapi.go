package gateway

import (
	_ "embed" // the description
	"net/http"

	"github.com/rondo-rl/rondo/services/gateway/dialects"
)

// endpoint is something that the gateway serves. The table of them makes the handlers and the
// description, openapi.json.
type endpoint struct {
	pattern string
	dialect dialects.Dialect
	serve   func(w *stream, r *http.Request, t *tenant) error
	summary string
	// asks and answers are values of the types of the bodies. nil is a body that the dialect's own
	// reference describes, or none.
	asks, answers any
	status        int
	// repeatable calls take the header Idempotency-Key.
	repeatable bool
}

func (g *Gateway) endpoints() []endpoint {
	talk := func(path, like string, d dialects.Dialect) endpoint {
		return endpoint{pattern: "POST /rollouts/{id}/v1/" + path, dialect: d, status: http.StatusOK,
			summary: "Sample a turn, as " + like,
			serve:   func(w *stream, r *http.Request, t *tenant) error { return g.call(w, r, t, d) }}
	}
	chat := dialects.Chat{}
	gemini := func(version string) endpoint {
		return endpoint{pattern: "POST /rollouts/{id}/" + version + "/models/{method...}", dialect: dialects.Gemini{},
			serve: g.gemini, status: http.StatusOK,
			summary: "Sample a turn, as Gemini's generateContent and streamGenerateContent, or count the tokens of its prompt, as countTokens"}
	}
	return []endpoint{
		{pattern: "POST /rollouts", dialect: chat, serve: g.start, status: http.StatusCreated, asks: startAsk{},
			answers: started{}, summary: "Start a rollout, and its group when it is the first one"},
		{pattern: "GET /rollouts/{id}", dialect: chat, serve: g.show, status: http.StatusOK, answers: report{},
			summary: "How a rollout stands, and its verdict"},
		{pattern: "GET /rollouts/{id}/turns", dialect: chat, serve: g.turns, status: http.StatusOK,
			answers: turnsAnswer{}, summary: "The tokens of a rollout's turns"},
		{pattern: "POST /rollouts/{id}/finish", dialect: chat, serve: g.finish, status: http.StatusOK,
			asks: finishAsk{}, answers: report{},
			summary: "End a rollout: with a reward, by its task's verifier, or with a failure. It may be repeated"},
		{pattern: "POST /rollouts/{id}/exec", dialect: chat, serve: onWorkspace[execAsk](g), status: http.StatusOK,
			asks: execAsk{}, answers: execAnswer{}, repeatable: true,
			summary: "Run a command in the rollout's workspace"},
		{pattern: "POST /rollouts/{id}/read", dialect: chat, serve: onWorkspace[readAsk](g), status: http.StatusOK,
			asks: readAsk{}, answers: readAnswer{}, repeatable: true,
			summary: "Read a part of a file of at most 64 MiB"},
		{pattern: "POST /rollouts/{id}/write", dialect: chat, serve: onWorkspace[writeAsk](g), status: http.StatusOK,
			asks: writeAsk{}, answers: writeAnswer{}, repeatable: true,
			summary: "Replace a file of at most 4 MiB, and make the folders above it"},
		{pattern: "GET /rollouts/{id}/v1/models", dialect: chat, serve: g.models, status: http.StatusOK,
			summary: "The one model that a rollout has, as OpenAI lists models"},
		talk("chat/completions", "OpenAI's chat completions", chat),
		talk("responses", "OpenAI's responses", dialects.Responses{}),
		talk("messages", "Anthropic's messages", dialects.Messages{}),
		{pattern: "POST /rollouts/{id}/v1/messages/count_tokens", dialect: dialects.MessagesCount{},
			serve: g.countMessages, status: http.StatusOK,
			summary: "Count the tokens of a prompt, as Anthropic's count_tokens"},
		gemini("v1beta"),
		gemini("v1"), // which the newer clients ask where an address is set
	}
}

// gemini answers one call of a harness whose path says what it is.
func (g *Gateway) gemini(w *stream, r *http.Request, t *tenant) error {
	d, err := dialects.GeminiMethod(r.PathValue("method"), r.URL.Query())
	if err != nil {
		err = problem(http.StatusNotFound, "not_found", "%v", err)
		t.agent.heard(r.Context(), err)
		return err
	}
	if counting, is := d.(dialects.Counting); is {
		return g.count(w, r, t, counting)
	}
	return g.call(w, r, t, d)
}

//go:embed openapi.json
var description []byte

// describe answers with the description. It needs no key: it tells of no run.
func describe(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Write(description)
}
