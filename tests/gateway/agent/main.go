// Command agent is the agent of the gateway's tests, in sandboxes: what it does is its first
// argument, its prompt is the second, and the third one is its model's address.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

func main() {
	if err := actAgent(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
}

// redPNG is an image of 3 by 2 pixels.
const redPNG = "iVBORw0KGgoAAAANSUhEUgAAAAMAAAACCAIAAAASFvFNAAAAEElEQVR4nGM8wQAFTDAGAwAPFADMILIQogAAAABJRU5ErkJggg=="

// actAgent is an agent that runs what its model calls, and those that do worse.
func actAgent(what, instruction string) error {
	if instruction != os.Getenv("RONDO_INSTRUCTION") {
		return fmt.Errorf("told %q and %q", instruction, os.Getenv("RONDO_INSTRUCTION"))
	}
	if told := os.Getenv("SCRIPTED_SETTINGS"); told != "" {
		found, err := os.ReadFile(filepath.Join(os.Getenv("HOME"), ".scripted/settings"))
		if want := regexp.MustCompile(
			`^[a-z]+ http://127\.0\.0\.1:\d+ \S+ [0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`); err != nil ||
			string(found) != told || !want.MatchString(told) {
			return fmt.Errorf("settings %q, variable %q: %v", found, told, err)
		}
	}
	messages := []any{map[string]any{"role": "user", "content": instruction}}
	fmt.Println("agent begins")
	switch what {
	case "nothing":
		return nil
	case "hang":
		<-time.After(time.Hour)
	case "probe":
		return probe()
	}
	if what == "shows" {
		image := map[string]any{"type": "image_url", "image_url": map[string]any{"url": "data:image/png;base64," +
			redPNG}}
		messages = []any{map[string]any{"role": "user",
			"content": []any{map[string]any{"type": "text", "text": instruction}, image}}}
	}
	if what == "titles" {
		title := []any{map[string]any{"role": "system", "content": "You are a title generator."}, messages[0]}
		if _, _, err := askModel(title); err != nil {
			return err
		}
	}
	for {
		said, calls, err := askModel(messages)
		if err != nil && what == "for ever" {
			continue
		}
		if err != nil {
			return err
		}
		messages = append(messages, said)
		switch what {
		case "exit":
			return errors.New("it cannot go on")
		case "hoard":
			for hoarded := [][]byte{}; ; {
				hoarded = append(hoarded, bytes.Repeat([]byte("x"), 1<<20))
			}
		case "miscounts":
			return countTokens()
		case "flood":
			for line := bytes.Repeat([]byte("flood\n"), 10000); ; {
				os.Stdout.Write(line)
			}
		case "forks":
			for range 100000 {
				if exec.Command("/bin/sleep", "3600").Start() != nil {
					break
				}
			}
		case "hang behind":
			<-time.After(time.Hour)
		case "daemon":
			c := exec.Command("/bin/sh", "-c", "while :; do echo more >> late.txt; sleep 0.1; done")
			c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			if err := c.Start(); err != nil {
				return err
			}
		}
		if len(calls) == 0 && what != "for ever" {
			return nil
		}
		for _, c := range calls {
			out, _ := exec.Command("/bin/sh", "-c", c[1]).CombinedOutput()
			messages = append(messages, map[string]any{"role": "tool", "tool_call_id": c[0], "content": string(out)})
		}
	}
}

// askModel asks as a client of OpenAI does.
func askModel(messages []any) (said map[string]any, calls [][2]string, err error) {
	tool := map[string]any{"type": "function",
		"function": map[string]any{"name": "sh", "parameters": map[string]any{"type": "object"}}}
	status, text, err := request(http.MethodPost, os.Getenv("OPENAI_BASE_URL")+"/chat/completions",
		map[string]any{"messages": messages, "tools": []any{tool}})
	if err != nil {
		return nil, nil, err
	}
	var answer struct {
		Choices []struct{ Message map[string]any }
	}
	if err := json.Unmarshal(text, &answer); err != nil || status != http.StatusOK || len(answer.Choices) != 1 {
		return nil, nil, fmt.Errorf("status %d: %s", status, text)
	}
	said = answer.Choices[0].Message
	list, _ := said["tool_calls"].([]any)
	for _, c := range list {
		call := c.(map[string]any)
		var args struct{ Command string }
		if err := json.Unmarshal([]byte(call["function"].(map[string]any)["arguments"].(string)), &args); err != nil {
			return nil, nil, err
		}
		calls = append(calls, [2]string{call["id"].(string), args.Command})
	}
	return said, calls, nil
}

func request(method, url string, body any) (status int, text []byte, err error) {
	data, err := json.Marshal(body)
	if err != nil {
		return 0, nil, err
	}
	r, err := http.NewRequest(method, url, bytes.NewReader(data))
	if err != nil {
		return 0, nil, err
	}
	r.Header.Set("Authorization", "Bearer "+os.Getenv("OPENAI_API_KEY"))
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	text, err = io.ReadAll(answer.Body)
	return answer.StatusCode, text, err
}

// probe looks for ways out, and ends well where it finds none but the one to its model.
func probe() error {
	base := os.Getenv("ANTHROPIC_BASE_URL")
	began := time.Now()
	for _, path := range []string{"/", "/rollouts", "/rollouts/r.g000001-0/v1/chat/completions",
		"/rollouts/r.g000001-1/finish", "/rollouts/r.xother-0/exec", "/v1/telemetry",
		"/v1beta/models/x:embedContent", "/healthz", "/openapi.json"} {
		status, text, err := request(http.MethodPost, base+path, map[string]any{"messages": []any{}})
		if err != nil || status != http.StatusNotFound {
			return fmt.Errorf("%s: %d %s %v", path, status, text, err)
		}
	}
	for _, address := range []string{"8.8.8.8:53", "169.254.169.254:80", os.Args[3], "example.org:443",
		"127.0.0.1:22", "[::1]:4222"} {
		if c, err := net.DialTimeout("tcp", address, 5*time.Second); err == nil {
			c.Close()
			return fmt.Errorf("%s can be reached", address)
		}
	}
	for _, proxied := range []string{"http://example.org/",
		"http://" + os.Args[3] + "/v1/models"} { // by its way, as a proxy
		c, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
		if err != nil {
			return err
		}
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", proxied)
		answer, _ := io.ReadAll(c)
		if !strings.HasPrefix(string(answer), "HTTP/1.1 403 ") {
			return fmt.Errorf("%s: %s", proxied, answer)
		}
	}
	if took := time.Since(began); took > 20*time.Second {
		return fmt.Errorf("refusals took %s", took)
	}
	for _, at := range []string{"/run", "/var/run", "/tmp"} {
		if sockets, _ := filepath.Glob(at + "/*.sock"); len(sockets) > 0 {
			return fmt.Errorf("sockets of the host: %v", sockets)
		}
	}
	if err := countTokens(); err != nil {
		return err
	}
	_, _, err := askModel([]any{map[string]any{"role": "user",
		"content": "one turn, so that there is something to score"}})
	return err
}

// countTokens asks as a client of Anthropic does.
func countTokens() error {
	status, text, err := request(http.MethodPost, os.Getenv("ANTHROPIC_BASE_URL")+"/v1/messages/count_tokens",
		map[string]any{"messages": []any{map[string]any{"role": "user", "content": "What of it?"}}})
	if err != nil || status != http.StatusOK || !strings.HasPrefix(string(text), `{"input_tokens":`) {
		return fmt.Errorf("tokens cannot be counted: %d %s %v", status, text, err)
	}
	return nil
}
