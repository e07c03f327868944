"""The oracle: who may have caused each tool call, and who may have been shown each post.

It knows Hansard's promises and none of its code. From the configuration, an export with facts and what a witness saw
it derives:

    every turn has recorded who asked for it, and nobody who did not
    every tool that ran was allowed to each person who asked for its turn; for nobody, nothing runs
    what needs a yes ran after one of each person who needs it: where they asked, after the question was shown there
    while a model was told words of others, imports or results of other servers, a tool that minds needs a yes
    in a room a yes is given to the question itself: a command, a reply, a reaction or a button
    every word stays where it belongs: with its person, in its room, with one person in a room (L11)
    nothing is said to who is barred; who may not talk leaves no word behind
"""

from __future__ import annotations

from typing import NamedTuple

from tests.security.oracle_story import TERMINAL, TOKEN, Config, Export, Line, People, Who, Witnessed, place_of
from tests.security.oracle_turns import Turn, read_turns


class Finding(NamedTuple):
    """Something that must not have happened."""

    rule: str
    what: str


class Call(NamedTuple):
    """A tool call that ran: where the model made it."""

    session_id: str
    message_id: str
    seq: int
    turn_id: str
    call_id: str
    tool: str
    ran: Line


def judge(config: str, export: str, witness: list[Line]) -> list[Finding]:
    """Return everything that must not have happened."""
    return Oracle(Config(config), Export(export), Witnessed(witness)).judge()


class Oracle:
    """One case."""

    def __init__(self, config: Config, export: Export, witnessed: Witnessed) -> None:
        """Read it."""
        self.config = config
        self.export = export
        self.witnessed = witnessed
        self.people = People(config, export, witnessed)
        self.findings: list[Finding] = []
        self.turns = {session_id: read_turns(export, session_id) for session_id in export.sessions}
        self._origins = find_origins(export)
        self._deliveries = export.deliveries()

    def find(self, rule: str, what: str) -> None:
        """Note a finding."""
        self.findings.append(Finding(rule, what))

    def judge(self) -> list[Finding]:
        """Look at everything."""
        self._judge_calls()
        self._judge_askers()
        self._judge_words()
        for event in self.witnessed.of("shown"):
            self._judge_post(event)
        for event in self.witnessed.of("drawn"):
            viewer = Who(TERMINAL, "", is_direct=True, n=event["n"])
            self._judge_tokens(event, viewer, event["session_id"])
        return self.findings

    # Who said what.

    def author(self, session_id: str, fact: Line) -> Who | None:
        """Return who really said a message; nobody when it was imported, or no witness saw it said."""
        if fact["body"].get("imported"):
            return None
        event = self.witnessed.by_event.get(fact["body"].get("event_id", ""))
        if event is None:
            tokens = TOKEN.findall(self.export.text(session_id, fact["id"]))
            event = next((self.witnessed.tokens[token] for token in tokens if token in self.witnessed.tokens), None)
        if event is None and not fact["body"].get("chat") and self.export.sessions[session_id]["source"] == "cli":
            text = self.export.first_text(session_id, fact["id"])
            typed = [each for each in self.witnessed.of("typed") if each["text"].strip() == text.strip()]
            earlier = [each for each in typed if each["at"] <= fact["at_microseconds"]]
            event = earlier[-1] if earlier else None
        return self.witnessed.who(event)

    def askers(self, call: Call) -> list[Who]:
        """Return everybody who asked for the turn of a call, by what they really did."""
        turn = self.turns[call.session_id].get(call.turn_id, Turn())
        steered = [fact for fact in turn.steered if fact["seq"] < call.seq]
        found = [self.author(call.session_id, fact) for fact in (*turn.answers, *turn.callers, *steered)]
        return list(dict.fromkeys(who for who in found if who is not None))

    def recorded_askers(self, call: Call) -> list[Who]:
        """Return everybody who asked for the turn of a call, by what is recorded."""
        turn = self.turns[call.session_id].get(call.turn_id, Turn())
        by = [(each["person"], each.get("chat", "")) for each in turn.by if each["seq"] < call.seq]
        return [self._recorded(*each) for each in dict.fromkeys(by)]

    def _recorded(self, person: str, chat: str) -> Who:
        """Return somebody who asked, as Hansard recorded it."""
        if not chat:
            return Who(TERMINAL, "", is_direct=True)
        is_direct = any(event["is_direct"] for event in self.witnessed.said if event["chat"] == chat)
        return Who(person, chat, is_direct=is_direct)

    def _judge_askers(self) -> None:
        """Who asked for a turn is recorded with it, and nobody who did not."""
        for session_id, turns in self.turns.items():
            for turn_id, turn in turns.items():
                if not turn.has_begun:
                    continue
                recorded = {(each["person"], each.get("chat", "")) for each in turn.by}
                said = [self.author(session_id, fact) for fact in turn.answers]
                asked = [self.author(session_id, fact) for fact in (*turn.callers, *turn.steered)]
                must = {self._name(who) for who in ([*asked] if turn.is_again else [*asked, *said]) if who is not None}
                late = [self.author(session_id, fact) for fact in turn.late]
                may = {self._name(who) for who in (*asked, *said, *late) if who is not None}
                for person, chat in must - recorded:
                    self.find("asker left out", f"{person} in {chat} asked for turn {turn_id} of {session_id}")
                for person, chat in recorded - may:
                    self.find("asker made up", f"{person} in {chat} never asked for turn {turn_id} of {session_id}")

    def _name(self, who: Who) -> tuple[str, str]:
        """Return somebody as Hansard records who asked."""
        return (f"person:{self.config.terminal}", "") if who.account == TERMINAL else (who.account, who.chat)

    # Tools.

    def _judge_calls(self) -> None:
        """Every run of a tool is one recorded call that was allowed."""
        calls = find_calls(self.export)
        seen: set[str] = set()
        for ran in self.witnessed.of("ran"):
            if ran["nonce"] in seen:
                self.find("ran twice", f"{ran['tool']} {ran['nonce']}")
            seen.add(ran["nonce"])
            call = calls.get(ran["nonce"])
            if call is None:
                self.find("not recorded", f"{ran['tool']} {ran['nonce']} ran, and no call of it is in the export")
            else:
                self._judge_call(call._replace(ran=ran))

    def _judge_call(self, call: Call) -> None:
        askers = self.askers(call)
        where = f"{call.tool} in turn {call.turn_id} of {call.session_id}"
        if not askers:
            self.find("nobody asked", f"{where} ran, and nobody asked for it")
        known = {self._name(who) for who in askers}
        askers += [who for who in self.recorded_askers(call) if self._name(who) not in known]
        needed = []
        for who in askers:
            does = self._verdict(call, who, askers)
            if does == "deny":
                rank = self.people.rank(who, call.ran["at"])
                self.find("not permitted", f"{where} ran, and {who.account} ({rank}), who asked, may not")
            elif does == "ask":
                needed.append(who)
        if needed:
            self._judge_answers(call, askers, needed, where)

    def _verdict(self, call: Call, who: Who, askers: list[Who]) -> str:
        """Return what becomes of a call, as far as one of those who asked for it goes."""
        if self.people.rank(who, call.ran["at"]) in {"barred", "stranger"}:
            return "deny"
        rule = self.config.rule_for(call.tool, who)
        does = "allow" if rule["do"] == "ask" and self._is_granted(call, who) else str(rule["do"])
        is_foreign = call.tool.startswith("mcp__") and who.room != "" and not rule.get("reads_only")
        minds = does == "allow" and (rule.get("untrusted") == "ask" or is_foreign)
        return "ask" if minds and self._untrusted(call, askers) else does

    def _is_granted(self, call: Call, who: Who) -> bool:
        """Return whether somebody had said yes to a tool for the session, or always in this chat, but in no room."""
        for session_id in self.export.sessions:
            for fact in self.export.of_session(session_id, "question.answered"):
                body = fact["body"]
                scopes = {"session": session_id == call.session_id, "always": who.is_direct}
                is_wide = body["yes"] and scopes.get(body.get("scope", ""), False)
                if not is_wide or body.get("tool") != call.tool or fact["at_microseconds"] > call.ran["at"]:
                    continue
                given = self._answerer(session_id, fact)
                if given is not None and self._name(given) == self._name(who):
                    return True
        return False

    def _untrusted(self, call: Call, askers: list[Who]) -> str:
        """Return which text that nobody of those who asked wrote is in the request that led to a call."""
        people = set().union(*(self.people.circle(self.config.person(who.account), call.ran["at"]) for who in askers))
        foreign = {part["id"] for part in self._parts("tool_call") if part["name"].startswith("mcp__")}
        turn = self.turns[call.session_id].get(call.turn_id, Turn())
        for session_id, fact in self.export.told(call.session_id, call.seq):
            if fact["body"].get("imported"):
                return f"{fact['id']} was imported"
            if fact["body"]["role"] == "user" and (session_id != call.session_id or turn.is_given(fact)):
                who = self.author(session_id, fact)
                if who is None or self.config.person(who.account) not in people:
                    return f"{fact['id']} is somebody else's"
            for part in self.export.messages.get((session_id, fact["id"]), {}).get("parts", ()):
                is_result = part["type"] == "tool_result" and part.get("outcome", "ok") != "not_started"
                if is_result and part["call_id"] in foreign:
                    return f"{fact['id']} is a result of another server's tool"
        return ""

    def _parts(self, kind: str) -> list[Line]:
        return [part for line in self.export.messages.values() for part in line["parts"] if part["type"] == kind]

    def _judge_answers(self, call: Call, askers: list[Who], needed: list[Who], where: str) -> None:
        """A call ran after a yes of each person who had to say it."""
        asked: dict[int, Line] = {}
        given: list[Who] = []
        for fact in self.export.of_session(call.session_id, "question.asked", "question.answered"):
            body = fact["body"]
            if (body["turn_id"], body["call_id"]) != (call.turn_id, call.call_id):
                continue
            number = int(body.get("number") or fact["id"].rpartition(":")[2])
            if fact["kind"] == "question.asked":
                asked[number] = fact
            elif body["yes"] and number in asked:
                given += self._judge_yes(call, askers, where, asked[number], fact)
        said = {
            person for who in given for person in self.people.circle(self.config.person(who.account), call.ran["at"])
        }
        for who in needed:
            if self.config.person(who.account) not in said:
                self.find("no answer", f"{where} ran, and {who.account} did not say yes")

    def _judge_yes(self, call: Call, askers: list[Who], where: str, asked: Line, answered: Line) -> list[Who]:
        """Judge one yes; return who said it."""
        who = self._answerer(call.session_id, answered)
        if who is None:
            self.find("no answer", f"{where} ran, and nobody was seen to say yes")
            return []
        said = self.witnessed.events[who.n]
        if who.n > call.ran["n"]:
            self.find("late answer", f"{where} ran before {who.account} said yes")
        if (who.account, who.chat) not in {(each.account, each.chat) for each in askers}:
            self.find("wrong person", f"{where} ran by the yes of {who.account} in {who.chat}, who did not ask there")
        if self.people.rank(who, said["at"]) in {"barred", "stranger"}:
            self.find("wrong person", f"{where} ran by the yes of {who.account}, who may not talk")
        message_id = asked["body"]["message_id"]
        if call.ran["nonce"] not in self.export.first_text(call.session_id, message_id):
            self.find("another call", f"{where} ran by a yes of {who.account} to a question about another call")
        if not self._was_shown(message_id, who):
            self.find("not shown", f"{where} ran by a yes of {who.account} that was said before the question was shown")
        if not who.is_direct and not is_meant(said):
            self.find("not meant", f"{where} ran by {said['text']!r}, which {who.account} said in a room")
        return [who]

    def _answerer(self, session_id: str, answered: Line) -> Who | None:
        """Return who really gave an answer: by the message that says it, or the command before it."""
        facts = {fact["id"]: fact for fact in self.export.of_session(session_id, "message.added")}
        fact = facts.get(answered["body"].get("message_id", ""))
        if fact is None:
            earlier = [
                each
                for each in facts.values()
                if each["seq"] < answered["seq"] and "/yes" in self.export.first_text(session_id, each["id"])
            ]
            fact = earlier[-1] if earlier else None
        return None if fact is None else self.author(session_id, fact)

    def _was_shown(self, message_id: str, who: Who) -> bool:
        """Return whether somebody had been shown a question when they answered it."""
        if who.account == TERMINAL:
            drawn = self.witnessed.of("drawn")
            return any(each["message_id"] == message_id and each["n"] < who.n for each in drawn)
        said = self.witnessed.events[who.n]
        for event in self.witnessed.of("shown"):
            _, created = self._deliveries.get(event["key"], ("", None))
            is_it = created is not None and created["body"]["message_id"] == message_id
            if is_it and event["chat"] == who.chat and (event["n"] < who.n or is_too_near(said, event)):
                return True
        return False

    # Words.

    def _judge_words(self) -> None:
        """What somebody says is taken only from those who may talk, and into a session that is theirs there."""
        for session_id, line in self.export.sessions.items():
            for fact in self.export.of_session(session_id, "message.added"):
                event = self.witnessed.by_event.get(fact["body"].get("event_id", ""))
                if event is None or fact["body"].get("imported"):
                    continue
                who = Who(event["sender"], event["chat"], event["is_direct"], event["n"])
                if fact["body"].get("author") != who.account:
                    self.find("wrong author", f"{who.account} said {event['text']!r}, recorded as another's")
                if self.people.rank(who, event["at"]) in {"barred", "stranger"}:
                    self.find("may not talk", f"the words of {who.account} in {who.chat} were taken: {event['text']!r}")
                if not self.may_see(who, line["owner"], event["at"]):
                    self.find("others' session", f"{who.account} spoke in {who.chat} in a session of {line['owner']}")

    def may_see(self, who: Who, owner: str, at: int) -> bool:
        """Return whether a session of an owner may be seen by somebody where they are (L11)."""
        if who.is_direct:
            circle = self.people.circle(self.config.person(who.account), at)
            return owner.startswith("person:") and self.people.owner(owner) in circle
        room, _, person = owner.removeprefix("room:matrix:").partition(":person:")
        if not owner.startswith("room:") or room != who.room:
            return False
        if not self.config.is_per_person:
            return not person
        return bool(person) and self.config.person(person) == self.config.person(who.account)

    def _judge_post(self, event: Line) -> None:
        """Judge what a chat was shown."""
        members = event["members"]
        session_id, created = self._deliveries.get(event["key"], (None, None))
        if session_id is None or created is None:
            self.find("not recorded", f"{event['text']!r} was shown in {event['chat']}, and no delivery is recorded")
            return
        is_direct = len(members) == 1
        viewer = Who(members[0] if is_direct else "", event["chat"], is_direct=is_direct, n=event["n"])
        if is_direct:
            # What was recorded for somebody before they were barred may still be shown: it was theirs.
            rank = self.people.rank(viewer, self._recorded_at(session_id, created))
            if rank == "barred":
                self.find("barred", f"{viewer.account} is barred, and was shown {event['text']!r}")
            if rank == "stranger" and session_id:
                self.find("stranger", f"{viewer.account} may not talk, and was shown {event['text']!r}")
        self._judge_tokens(event, viewer, session_id)

    def _recorded_at(self, session_id: str, created: Line) -> int:
        """Return when the message was recorded that a delivery shows."""
        facts = self.export.of_session(session_id, "message.added", "message.opened")
        times = [fact["at_microseconds"] for fact in facts if fact["id"] == created["body"]["message_id"]]
        return int(times[0] if times else created["at_microseconds"])

    def _judge_tokens(self, event: Line, viewer: Who, session_id: str) -> None:
        """Every word that is shown belongs to whom it is shown: to the person, to the room, to one person in it."""
        for token in dict.fromkeys(TOKEN.findall(event["text"])):
            origin = self._origins.get(token)
            owner = self.export.sessions[origin]["owner"] if origin else ""
            if viewer.is_direct:
                is_own = self.may_see(viewer, owner, int(event.get("begun_at") or event["at"]))
            else:
                shown_in = self.export.sessions[session_id]["owner"] if session_id else ""
                is_own = owner == shown_in and place_of(viewer.chat) == owner.split(":", 2)[-1].partition(":person:")[0]
            if not is_own:
                where = viewer.account or viewer.chat
                self.find("others' words", f"{token} of {owner or 'nobody'} was shown to {where}: {event['text']!r}")


def is_too_near(said: Line, shown: Line) -> bool:
    """Return whether a platform's clock cannot tell which came first. It counts milliseconds, maybe whole seconds."""
    said_at = said.get("sent_at_ms", 0) * 1_000
    return bool(shown["at"] < said_at + (1_000_000 if said_at % 1_000_000 == 0 else 1_000))


def is_meant(said: Line) -> bool:
    """Return whether what somebody did in a room can only be an answer to a question: a command, or a choice."""
    return "/yes" in said["text"] or said.get("choice") in {"yes", "session", "always"}


def find_calls(export: Export) -> dict[str, Call]:
    """Return every call of the export, by what only it says."""
    calls = {}
    for (session_id, message_id), line in export.messages.items():
        opened = [each for each in export.of_session(session_id, "message.opened") if each["id"] == message_id]
        for part in line["parts"] if opened else ():
            if part["type"] == "tool_call" and "nonce-" in part.get("arguments", ""):
                nonce = part["arguments"].partition('"nonce-')[2].partition('"')[0]
                turn_id = opened[0]["body"]["turn_id"]
                call = Call(session_id, message_id, opened[0]["seq"], turn_id, part["id"], part["name"], {})
                calls[f"nonce-{nonce}"] = call
    return calls


def find_origins(export: Export) -> dict[str, str]:
    """Return the session in which each word was said first."""
    origins: dict[str, str] = {}
    for session_id in export.sessions:
        for fact in export.of_session(session_id, "message.added"):
            if fact["body"]["role"] == "user" or fact["body"].get("author"):
                for token in TOKEN.findall(export.text(session_id, fact["id"])):
                    known = origins.get(token)
                    if known is None or made_at(export, session_id) < made_at(export, known):
                        origins[token] = session_id
    return origins


def made_at(export: Export, session_id: str) -> int:
    """Return when a session was made."""
    return int(export.sessions[session_id].get("created_at_microseconds", 0))
