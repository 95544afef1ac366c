package toolserver

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestMain makes this test program a server where it is started with RONDO_TEST_SERVER.
func TestMain(m *testing.M) {
	if kind := os.Getenv("RONDO_TEST_SERVER"); kind != "" {
		if err := serve(kind); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// serve is the server that this program is in a sandbox.
func serve(kind string) error {
	switch kind {
	case "silent":
		time.Sleep(time.Hour)
	case "babbling":
		for {
			fmt.Println(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"more"}}`)
		}
	case "giant":
		fmt.Print(`{"jsonrpc":"2.0","id":1,"result":"`)
		for {
			fmt.Print(strings.Repeat("a", 1<<16))
		}
	case "garbage":
		fmt.Println("Listening …")
		os.Exit(4)
	case "broken":
		fmt.Println("Listening …")
		fmt.Fprintln(os.Stderr, strings.Repeat("a warning\n", 1000)+"\x1b[31mno such file:\x1b[0m config.yaml")
		os.Exit(3)
	case "chatty":
		fmt.Print("\ufeff\nStarting server v1.0 …\r\n[INFO] ready\n{\"level\":\"info\",\"msg\":\"ready\"}\n[1]\n> ")
		return newServer().Run(context.Background(), &mcp.IOTransport{Reader: os.Stdin, Writer: chatty{os.Stdout}})
	}
	return newServer().Run(context.Background(), &mcp.StdioTransport{})
}

// chatty writes messages as many servers do: between lines of a log, with other line ends and ids,
// and what nobody asked for.
type chatty struct{ *os.File }

func (c chatty) Write(message []byte) (int, error) {
	text := regexp.MustCompile(`"id":(\d+)`).ReplaceAll(bytes.TrimSpace(message), []byte(`"id":"$1"`))
	_, err := fmt.Fprintf(c.File, "\x1b[32mok\x1b[0m %s\r\n\r\n%s\n[%s]\r\ncalled\n", text,
		`{"jsonrpc":"2.0","id":4000,"result":{}}`,
		`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}`)
	return len(message), err
}

type asked struct {
	Text string `json:"text"`
}

// newServer is one as any, with tools that go wrong in all ways that there are.
func newServer() *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	calls := 0
	add := func(name string, readOnly bool, answer func(ctx context.Context,
		text string) (*mcp.CallToolResult, error)) {
		tool := &mcp.Tool{Name: name, Description: "Does " + name + ".",
			Annotations: &mcp.ToolAnnotations{ReadOnlyHint: readOnly}}
		mcp.AddTool(server, tool, func(ctx context.Context, _ *mcp.CallToolRequest,
			a asked) (*mcp.CallToolResult, any, error) {
			result, err := answer(ctx, a.Text)
			return result, nil, err
		})
	}
	said := func(text string) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil
	}
	add("echo", true, func(_ context.Context, text string) (*mcp.CallToolResult, error) { return said(text) })
	add("count", false, func(context.Context, string) (*mcp.CallToolResult, error) {
		calls++
		return said(fmt.Sprint(calls))
	})
	add("write", false, func(_ context.Context, text string) (*mcp.CallToolResult, error) {
		if err := os.WriteFile("by-server.txt", []byte(text), 0o644); err != nil {
			return nil, err
		}
		return said("written")
	})
	add("fail", false, func(_ context.Context, text string) (*mcp.CallToolResult, error) {
		return nil, fmt.Errorf("no %s here", text)
	})
	add("picture", true, func(context.Context, string) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{
			&mcp.TextContent{Text: "before"}, &mcp.ImageContent{MIMEType: "image/png", Data: []byte("12345")},
			&mcp.ResourceLink{URI: "file:///a", Name: "a"},
			&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "u", Text: "inner"}},
		}}, nil
	})
	add("long", true, func(context.Context, string) (*mcp.CallToolResult, error) {
		return said(strings.Repeat("x", maxMessage))
	})
	add("hang", false, func(ctx context.Context, _ string) (*mcp.CallToolResult, error) {
		time.Sleep(time.Hour) // whatever ctx says
		return nil, nil
	})
	add("die", false, func(context.Context, string) (*mcp.CallToolResult, error) { os.Exit(7); return nil, nil })
	return server
}
