package dashboard

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/demo/policy"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/services/dashboard"
	"github.com/rondo-rl/rondo/services/intake"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestRedrive: what the intake refused is submitted again by who shows the token,
// once, and by nobody else.
func TestRedrive(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t)
	env := servicetest.Env(t, log)
	servicetest.Start(t, func(ctx context.Context) error { return intake.Run(ctx, env) })
	d, err := dashboard.New(t.Context(), env, dashboard.Access{Token: token, Open: true}, policy.TokenText)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(d)
	t.Cleanup(server.Close)
	if _, err := log.Submitter.Submit(t.Context(), eventlog.Submission{Run: "late", Type: events.RunPausedType,
		Entity: "late", Data: events.RunPaused{Reason: "lunch"}, ID: "x", Source: "test"}); err == nil {
		t.Fatal("a run that is not there was paused")
	}
	letter := ""
	natstest.Eventually(t, "the letter can be submitted again", func() bool {
		_, rest, _ := strings.Cut(get(t, server.URL+"/plane"), `name="letter" value="`)
		letter, _, _ = strings.Cut(rest, `"`)
		return letter != ""
	})
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	press := func(with, letter string) int {
		answer, err := client.PostForm(server.URL+"/letters", url.Values{"token": {with}, "letter": {letter}})
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		return answer.StatusCode
	}
	for name, c := range map[string]struct {
		with, letter string
		want         int
	}{
		"another token":           {token + "x", letter, http.StatusForbidden},
		"no token":                {"", letter, http.StatusForbidden},
		"no such letter":          {token, "99999", http.StatusNotFound},
		"the cause is not mended": {token, letter, http.StatusConflict},
	} {
		if got := press(c.with, c.letter); got != c.want {
			t.Errorf("%s: answered %d, want %d", name, got, c.want)
		}
	}
	servicetest.OpenRun(t, log, "late", servicetest.Config("fix"))
	for range 2 {
		if got := press(token, letter); got != http.StatusSeeOther {
			t.Fatalf("answered %d", got)
		}
	}
	paused := servicetest.All(t, log, "late", events.RunPausedType)
	if len(paused) != 1 || servicetest.Data[events.RunPaused](t, paused[0]).Reason != "lunch" {
		t.Errorf("the run has %d pauses", len(paused))
	}
}

func get(t *testing.T, address string) string {
	t.Helper()
	answer, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d, %v", address, answer.StatusCode, err)
	}
	return string(body)
}
