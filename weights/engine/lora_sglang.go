package engine

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// sglangAdapters is an SGLang server, as 0.5.23 is:
//
//	POST /load_lora_adapter    lora_name, lora_path; answers with success and error_message, and 400 where it failed
//	POST /unload_lora_adapter  lora_name; refuses new requests for it, waits for those that run, and unloads it
//	GET  /v1/models            lists each adapter with its folder (root) and its model (parent)
//
// A request names the adapter behind its model, as in base:my-policy@12, and
// /generate takes it as lora_path.
type sglangAdapters struct{ *client }

func (e sglangAdapters) load(ctx context.Context, name, dir string) error {
	return e.update(ctx, "/load_lora_adapter", map[string]string{"lora_name": name, "lora_path": dir})
}

// unloaded is what it says of an adapter that it does not have.
const unloaded = "does not exist"

func (e sglangAdapters) unload(ctx context.Context, name string) error {
	err := e.update(ctx, "/unload_lora_adapter", map[string]string{"lora_name": name})
	if err != nil && strings.Contains(err.Error(), unloaded) {
		return nil
	}
	return err
}

// update loads or unloads an adapter.
func (e sglangAdapters) update(ctx context.Context, path string, request any) error {
	var answer struct {
		Success bool   `json:"success"`
		Error   string `json:"error_message"`
	}
	err := e.ask(ctx, loadTime, path, request, &answer)
	var refused *statusError
	switch {
	case errors.As(err, &refused) && refused.status == http.StatusNotFound:
		return fmt.Errorf("%w (start SGLang with --enable-lora)", err)
	case err == nil && !answer.Success:
		return fmt.Errorf("%s: %s: %.300s", e.base, path, answer.Error)
	}
	return err
}

// heldAdapters is nil: the server unloads an adapter when its requests have ended.
func (e sglangAdapters) heldAdapters(context.Context) (func(string) bool, error) { return nil, nil }

func (e sglangAdapters) model(base, name string) string { return base + ":" + name }

func (e sglangAdapters) logprobs(ctx context.Context, name string, tokens []int32) ([]float64, error) {
	return e.promptLogprobs(ctx, tokens, map[string]any{"lora_path": name})
}
