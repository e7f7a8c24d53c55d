package demo

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestServiceReturnsTheClient(t *testing.T) {
	for name, test := range map[string]struct{ header, client string }{
		"plain":            {"", ""},
		"one proxy":        {`By=spiffe://m/b;Hash=0a1b;URI=spiffe://m/web`, "spiffe://m/web"},
		"the nearest wins": {`Hash=1;URI=spiffe://m/far,Hash=2;URI=spiffe://m/near`, "spiffe://m/near"},
		"nearest has none": {`Hash=1;URI=spiffe://m/far,Hash=2`, ""},
		"quoted separator": {`Subject="CN=a,O=b;URI=spiffe://m/forged";URI=spiffe://m/web`, "spiffe://m/web"},
		"quoted quote":     {`Subject="\";URI=spiffe://m/forged";URI=spiffe://m/web`, "spiffe://m/web"},
		"quoted value":     {`uri="spiffe://m/web"`, "spiffe://m/web"},
	} {
		t.Run(name, func(t *testing.T) {
			request := httptest.NewRequest(http.MethodGet, "/", nil)
			request.Header.Set("X-Forwarded-Client-Cert", test.header)
			recorder := httptest.NewRecorder()
			Service("backend", "backend-1").ServeHTTP(recorder, request)
			var got Response
			if err := json.Unmarshal(recorder.Body.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
			if want := (Response{"backend", "backend-1", test.client}); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}
