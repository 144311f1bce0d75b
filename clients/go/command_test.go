package antiphon

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestACommandIsAskedForAndCarriedOut(t *testing.T) {
	c, ctx := connect(t, func(p *peer) {
		asked := p.reply("command", `"replies":{"b":"forgotten"}`,
			`"failures":{"c":{"code":"unavailable","reason":"no","ran":"no"}}`)
		p.expect(asked["args"], map[string]any{"key": "/tea", "depth": 1.0, "deep": true})
		p.expect([]any{asked["verb"], asked["to"], asked["by"], asked["within"], asked["reply"]},
			[]any{"flush", []any{"b", "c"}, "udp", "2000ms", nil})
		asked = p.reply("command", `"failures":{"b":{"code":"failed","reason":"r","ran":"yes"}}`,
			`"error":{"code":"failed","reason":"no node did it","ran":"yes"}`)
		p.expect([]any{asked["to"], asked["args"], asked["reply"]}, []any{"one", nil, false})
		p.reply("commands", `"commands":{"list":5}`)
		p.reply("serve_command")
		p.say(`{"event":"command","request":3,"verb":"flush","from":"b",` +
			`"args":{"depth":9007199254740993,"key":"x","deep":false},"within_ms":1990}`)
		answer := p.reply("answer")
		p.expect([]any{answer["request"], answer["payload"]}, []any{3.0, "done"})
		p.say(`{"event":"command","request":4,"verb":"flush","from":"b","args":{},"within_ms":1990}`)
		p.expect(p.reply("answer")["error"], "no key")
	})
	args := Args{"key": "/tea", "depth": 1, "deep": true}
	of := must(c.Command(ctx, "flush", args, Nodes("b", "c"), By("udp"), Within(2*time.Second)))(t)
	if of.Replies["b"].String() != "forgotten" || of.Failures["c"].Ran != RanNo {
		t.Error(of)
	}
	_, err := c.Command(ctx, "flush", nil, One, NoReply())
	if e := isError(t, err, ErrFailed, RanYes); e.Failures["b"].Reason != "r" {
		t.Error(e)
	}
	if status := must(c.Commands(ctx))(t); string(status) != `{"list":5}` {
		t.Error(string(status))
	}
	err = c.ServeCommand(ctx, "flush", func(ctx context.Context, r *Request) ([]byte, error) {
		if r.Args["key"] == nil {
			return nil, errors.New("no key")
		}
		if r.Args["depth"] != int64(1<<53+1) || r.Args["key"] != "x" || r.Args["deep"] != false || r.From != "b" {
			t.Errorf("%#v", r)
		}
		return []byte("done"), nil
	})
	if err != nil {
		t.Error(err)
	}
	err = c.ServeCommand(ctx, "flush", nil)
	isError(t, err, ErrRefused, RanNo)
}

func TestATokenIsShownOverTLSAndAWrongOneIsTold(t *testing.T) {
	certified := httptest.NewTLSServer(nil) // for its certificate
	defer certified.Close()
	listener, err := tls.Listen("tcp", "127.0.0.1:0", certified.TLS)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			p := &peer{t, conn, bufio.NewScanner(conn)}
			if !p.lines.Scan() { // a handshake that failed
				conn.Close()
			} else if strings.Contains(p.lines.Text(), `"token":"right"`) {
				p.say(`{"event":"reply","op":"hello","id":1,%s}`, welcome)
				p.heard("leave")
			} else {
				p.say(`{"event":"error","reason":"this token is none of the agent's","request":null}`)
			}
			conn.Close()
		}
	}()
	trusted := x509.NewCertPool()
	trusted.AddCert(certified.Certificate())
	config := &tls.Config{RootCAs: trusted}
	ctx, address := context.Background(), listener.Addr().String()
	c := must(Connect(ctx, address, "x", TLS(config), Token("right")))(t)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	_, err = Connect(ctx, address, "x", TLS(config), Token("wrong"))
	if e := isError(t, err, ErrConnection, RanMaybe); e.Reason != "this token is none of the agent's" {
		t.Error(e)
	}
	_, err = Connect(ctx, address, "x", TLS(&tls.Config{RootCAs: x509.NewCertPool()}), Token("right"))
	var unknown x509.UnknownAuthorityError
	if isError(t, err, ErrConnection, RanNo); !errors.As(err, &unknown) {
		t.Error(err)
	}
}
