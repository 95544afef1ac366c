package inference_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/rondo-rl/rondo/inference"
)

func ExampleClient_Complete() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w,
			`{"choices": [{"message": {"role": "assistant", "content": "ls -l"}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 9, "completion_tokens": 3}}`)
	}))
	defer server.Close()

	client := inference.Client{HTTP: server.Client()}
	answer, err := client.Complete(context.Background(), server.URL+"/v1", inference.Request{
		Model: "small", Messages: []inference.Message{{Role: "user", Content: "List the files."}},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer answer.Done() // gives the memory of the answer back
	fmt.Println(answer.Choices[0].Message.Content, answer.Usage.CompletionTokens)
	// Output:
	// ls -l 3
}
