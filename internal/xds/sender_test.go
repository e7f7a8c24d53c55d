package xds

import (
	"runtime"
	"testing"
)

func TestASenderLooksAgainForWhatBecameReadyMeanwhile(t *testing.T) {
	var s sender
	if !s.start() {
		t.Fatal("an idle stream starts no goroutine")
	}
	if s.start() || s.start() {
		t.Error("a second goroutine sends on the stream")
	}
	if !s.again() {
		t.Error("the goroutine ends although the stream was roused while it was sending")
	}
	if s.again() {
		t.Error("the goroutine goes on with nothing ready")
	}
	if !s.start() {
		t.Error("the stream starts no goroutine after the last one has ended")
	}
}

func TestAStreamEndsAfterItsSender(t *testing.T) {
	for name, roused := range map[string]bool{"it is sending": false, "it has to look again": true} {
		s := sender{idle: make(chan struct{})}
		s.start()
		if roused {
			s.start()
		}
		ended := make(chan struct{})
		go func() { s.end(); close(ended) }()
		for s.state.Load() != senderEnded { // until end waits
			runtime.Gosched()
		}
		select {
		case <-ended:
			t.Errorf("%s: the stream ends before its goroutine", name)
		default:
		}
		if s.again() {
			t.Errorf("%s: the goroutine goes on after the end of the stream", name)
		}
		<-ended
		if s.start() {
			t.Errorf("%s: a goroutine starts after the end of the stream", name)
		}
	}
}
