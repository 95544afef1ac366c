package compose_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"time"
)

// gateway lets a harness outside of the containers make a rollout.
func (s *stack) gateway() {
	s.t.Helper()
	s.compose("--profile", "gateway", "up", "--detach", "--wait", "--wait-timeout", "1200", "gateway")
	write(s.t, filepath.Join(s.dir, "theirs.yaml"), "policy: small\nendpoint: builtin\nexternal: true\n", 0o644)
	s.compose("run", "--rm", "--no-TTY", "--volume", s.dir+":/work:ro", "rondo", "run", "open", "theirs",
		"--file", "/work/theirs.yaml")
	s.post("/rollouts", `{"run": "theirs", "task": "talk", "group": "first", "size": 1}`)
	s.post("/rollouts/theirs.xfirst-0/v1/chat/completions", `{"messages": [{"role": "user", "content": "Mend it."}]}`)
	if end := s.post("/rollouts/theirs.xfirst-0/finish", `{"reward": 1}`); end["state"] != "scored" {
		s.t.Errorf("the rollout ends as %v", end)
	}
	if out, err := s.rondo("audit", "theirs"); err != nil {
		s.t.Errorf("%v\n%s", err, out)
	}
	s.compose("--profile", "gateway", "rm", "--stop", "--force", "gateway")
}

func (s *stack) post(path, body string) (answer map[string]any) {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, "http://"+publish+":8790"+path,
		bytes.NewReader([]byte(body)))
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer change-me-gateway")
	client := http.Client{Timeout: 2 * time.Minute}
	response, err := client.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil {
		err = json.Unmarshal(text, &answer)
	}
	if err == nil && response.StatusCode >= 300 {
		err = fmt.Errorf("status %d", response.StatusCode)
	}
	if err != nil {
		s.t.Fatalf("POST %s: %v: %s", path, err, strings.TrimSpace(string(text)))
	}
	return answer
}
