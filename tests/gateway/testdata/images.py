"""A question about an image, by the official clients. Usage: images.py KEY FILE DIALECT=BASE_URL...; prints what each was told."""

import base64
import json
import sys

import anthropic
import openai
from google import genai
from google.genai import types


def ask(dialect, url, key, data):
    text = base64.b64encode(data).decode()
    address = f"data:image/png;base64,{text}"
    if dialect == "gemini":
        client = genai.Client(api_key=key, http_options=types.HttpOptions(base_url=url.removesuffix("/v1")))
        parts = ["What is it?", types.Part.from_bytes(data=data, mime_type="image/png")]
        return client.models.generate_content(model="any", contents=parts).text
    if dialect == "messages":
        client = anthropic.Anthropic(base_url=url.removesuffix("/v1"), api_key=key)
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": text}}
        said = [{"role": "user", "content": [{"type": "text", "text": "What is it?"}, image]}]
        answer = client.messages.create(model="any", max_tokens=100, messages=said)
        return next(b.text for b in answer.content if b.type == "text")
    client = openai.OpenAI(base_url=url, api_key=key)
    if dialect == "responses":
        parts = [{"type": "input_text", "text": "What is it?"}, {"type": "input_image", "image_url": address, "detail": "high"}]
        return client.responses.create(model="any", input=[{"role": "user", "content": parts}]).output_text
    parts = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": address}}]
    return client.chat.completions.create(model="any", messages=[{"role": "user", "content": parts}]).choices[0].message.content


with open(sys.argv[2], "rb") as file:
    shown = file.read()
print(json.dumps({d: ask(d, url, sys.argv[1], shown) for d, url in (a.split("=", 1) for a in sys.argv[3:])}))
