package page

import "fmt"

// locale is the language of the browser, on every machine.
const locale = "en-US"

// Arguments returns how Chromium is started. It reads the protocol from its
// descriptor 3, and writes it to 4. profile is a folder that does not exist yet.
// proxy is the URL of a proxy; empty: none, and names are not resolved either.
func Arguments(profile, proxy string, s Settings) []string {
	args := []string{
		"--headless", "--remote-debugging-pipe", "--user-data-dir=" + profile,
		"--no-startup-window", // Reset opens the first page
		fmt.Sprintf("--window-size=%d,%d", s.Width, s.Height),
		"--no-sandbox", // the sandbox around it takes its place: namespaces cannot be made in there
		"--lang=" + locale, "--disable-gpu", "--disable-dev-shm-usage", "--force-color-profile=srgb", "--mute-audio", "--password-store=basic",
		// A fresh profile without questions, and nothing that is sent or fetched unasked.
		"--no-first-run", "--no-default-browser-check", "--disable-background-networking", "--disable-component-update", "--disable-sync",
		"--disable-breakpad", "--disable-crash-reporter", "--disable-default-apps", "--disable-extensions", "--disable-quic", "--disable-domain-reliability", "--no-pings",
		"--metrics-recording-only", "--disable-client-side-phishing-detection",
		// Pages continue as if they were visible, and one process has all frames of
		// a page, so that one snapshot does.
		"--disable-renderer-backgrounding", "--disable-backgrounding-occluded-windows", "--disable-background-timer-throttling",
		"--disable-hang-monitor", "--disable-popup-blocking", "--disable-prompt-on-repost", "--disable-ipc-flooding-protection",
		"--disable-site-isolation-trials",
		"--disable-features=IsolateOrigins,site-per-process,OverlayScrollbar,Translate,OptimizationHints,MediaRouter,DialMediaRouteProvider,PaintHolding,HttpsUpgrades",
	}
	if proxy != "" {
		return append(args, "--proxy-server="+proxy, "--proxy-bypass-list=<-loopback>")
	}
	return append(args, "--no-proxy-server", "--host-resolver-rules=MAP * ~NOTFOUND")
}
