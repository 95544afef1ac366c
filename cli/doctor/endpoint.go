package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/rondo-rl/rondo/cli/opening"
	"github.com/rondo-rl/rondo/cli/service"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/inference/fleet"
	"github.com/rondo-rl/rondo/inference/probe"
)

// doctorEndpoint is what `rondo doctor` is told of inference servers.
type doctorEndpoint struct {
	url, model, file, keys string
	temperature            float64
}

func (o *doctorEndpoint) flags(f *pflag.FlagSet) {
	f.StringVar(&o.url, "endpoint", "",
		"base URL of an inference server to look at instead of the plane, for example http://127.0.0.1:8000/v1")
	f.StringVar(&o.model, "model", "", "the model that a run would ask it for")
	f.StringVar(&o.file, "file", "", "run file whose inference servers, sampling and limits are looked at")
	f.Float64Var(&o.temperature, "temperature", 1, "temperature that a run would sample with")
	f.StringVar(&o.keys, "endpoint-keys", "", "YAML file of which inference server is shown which key (or one key in "+
		service.EndpointKey+")")
}

// requested reports whether inference servers are to be looked at.
func (o *doctorEndpoint) requested() bool { return o.url != "" || o.model != "" || o.file != "" }

// endpointTimeout bounds what is asked of one server.
const endpointTimeout = 3 * time.Minute

// checks are one for each server.
func (o *doctorEndpoint) checks(given func(string) bool) ([]func(context.Context) []finding, error) {
	f := opening.RunFile{RunConfig: runfile.DefaultRunConfig()}
	if o.file != "" {
		var err error
		if f, err = opening.ReadRunFile(o.file); err != nil {
			return nil, err
		}
	}
	if o.url != "" {
		f.Endpoint, f.Endpoints = o.url, nil
	}
	if given("temperature") || o.file == "" {
		f.Sampling.Temperature = o.temperature
	}
	if err := f.Sampling.Validate(); err != nil {
		return nil, err
	}
	keys, err := service.ReadKeys(o.keys)
	if err != nil {
		return nil, err
	}
	servers := f.Servers()
	if len(servers) == 0 || servers[0].URL == runfile.BuiltinEndpoint {
		return nil, errors.New("name the inference server: --endpoint http://127.0.0.1:8000/v1, or --file with a run file that names one")
	}
	var checks []func(context.Context) []finding
	for _, server := range servers {
		if o.model != "" {
			server.Model = o.model
		}
		if server.Model == "" {
			return nil, errors.New("name the model that a run would ask for: --model my-model")
		}
		if err := server.Validate(); err != nil {
			return nil, fmt.Errorf("--endpoint: %w", err)
		}
		checks = append(checks, func(ctx context.Context) []finding {
			return tryEndpoint(ctx, server, f.RunConfig,
				keys)
		})
	}
	return checks, nil
}

// tryEndpoint looks at one inference server.
func tryEndpoint(ctx context.Context, server runfile.Endpoint, cfg runfile.RunConfig,
	keys fleet.Keys) (findings []finding) {
	client := &inference.Client{
		HTTP: &http.Client{CheckRedirect: func(*http.Request,
			[]*http.Request) error {
			return http.ErrUseLastResponse
		}},
		APIKey: keys.Key("", server.URL),
	}
	plain := false
	ask := func(ctx context.Context, request any) (answer *inference.Response, err error) {
		answer, plain, err = client.CompleteAs(ctx, server.URL, plain, request)
		answer.Done() // its few tokens need no budget
		return answer, err
	}
	byTokens := cfg.EndpointAPI == runfile.APITokens
	engine, unknown := "", error(nil)
	if byTokens {
		engine, unknown = client.Engine(ctx, server.URL)
	}
	for _, f := range probe.Server(ctx, ask, server.Model, cfg.Sampling) {
		if !byTokens || f.Check != "two turns" &&
			!(engine == inference.EngineLlamaCPP && slices.Contains(ofChats, f.Check)) {
			findings = append(findings, finding(f))
		}
	}
	if findings[0].Level == levelTrouble {
		return findings
	}
	if byTokens {
		if unknown != nil {
			return append(findings, finding{"path", levelTrouble,
				"the kind of the server is unknown: " + unknown.Error(), "see that it lists its models at /models"})
		}
		ask := func(ctx context.Context, conv inference.Conversation,
			fit func(int) (int, *inference.Failure)) (*inference.Response, error) {
			conv.Engine = engine
			answer, err := client.CompleteTokens(ctx, server.URL, conv, fit)
			answer.Done()
			return answer, err
		}
		findings = append(findings, pathOf(engine))
		for _, f := range probe.Tokens(ctx, ask, server.Model, cfg.Sampling) {
			findings = append(findings, finding(f))
		}
	}
	if plain {
		findings = append(findings, finding{"sampling", levelWarning,
			"the server takes OpenAI's own fields alone: top_k, min_p and repetition_penalty cannot be set, and " +
				"it gives no token ids", "use it for evaluations only"})
	}
	return append(findings, contextOf(ctx, client, server, cfg.Limits.Tokens)...)
}

// ofChats are the checks of what llama.cpp gives by tokens, and not in chats.
var ofChats = []string{"prompt ids", "token ids", "logprobs", "distribution"}

// pathOf says in which way a server is asked by tokens.
func pathOf(engine string) finding {
	found := map[string]string{
		inference.EngineVLLM:     "vLLM's /inference/v1/generate",
		inference.EngineSGLang:   "SGLang's /generate",
		inference.EngineLlamaCPP: "llama.cpp's /completion",
	}[engine]
	if found == "" {
		return finding{"path", levelWarning, fmt.Sprintf(
			"the server calls itself %.40q: turns are asked for by vLLM's /inference/v1/generate", engine),
			"use vLLM, SGLang or llama.cpp"}
	}
	return finding{"path", levelOK, "turns are asked for by " + found, ""}
}

// contextOf compares the server's context with what the run allows.
func contextOf(ctx context.Context, client *inference.Client, server runfile.Endpoint, tokens int) []finding {
	models, err := client.Models(ctx, server.URL)
	if err != nil {
		return []finding{{"context", levelWarning, "the length of the context is unknown: " + err.Error(),
			"set limits.tokens of the run to it"}}
	}
	i := slices.IndexFunc(models, func(m inference.Model) bool { return m.ID == server.Model })
	length := 0
	if i >= 0 {
		length = cmp.Or(models[i].Context, models[i].Trained)
	}
	switch {
	case i < 0:
		return []finding{{"context", levelWarning, fmt.Sprintf("the server answers, but does not list the model %s",
			server.Model), "see that it is the model that you mean"}}
	case length == 0:
		return []finding{{"context", levelWarning, "the server does not say how long its context is",
			"set limits.tokens of the run to it"}}
	case length < tokens:
		return []finding{{"context", levelWarning,
			fmt.Sprintf("the context has %d tokens, and limits.tokens of the run is %d: longer rollouts end with stop_reason context and are scored as they are", length, tokens),
			fmt.Sprintf("set limits.tokens to %d", length)}}
	}
	return []finding{ok("context", "%d tokens", length)}
}
