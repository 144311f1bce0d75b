"""The protocol without a socket."""

import json
import sys
import threading
import unittest
from datetime import timedelta
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

from antiphon import (Changed, Command, ConnectionLost, Error, Lost, LostEvent, Message, Refused, View,  # noqa: E402
                      Watching, address, core)
from antiphon.link import KEEP_BYTES, Link  # noqa: E402


class Story(unittest.TestCase):
    def setUp(self):
        self.core = core.Core(LostEvent, buffer_bytes=3000)

    def hear(self, *events):
        self.core.push(b"".join(json.dumps(event).encode() + b"\n" for event in events))
        while self.core.step():
            pass

    def ask(self, ask):
        asked, line = self.core.ask(ask)
        return asked, json.loads(line)

    def joined(self, group="g", who="me"):
        asked, line = self.ask(self.core.join(group, who))
        self.hear({"event": "reply", "op": "join", "id": asked.id})
        return asked.take()

    def take_all(self, stream):
        taken = []
        while stream.events:
            taken.append(stream.take("me"))
        return taken

    def message(self, number, payload="x"):
        return {"event": "message", "group": "g", "view": "1.1", "sender": "a/y", "seq": number, "payload": payload}

    def test_replies_in_any_order_find_what_was_asked(self):
        first, line = self.ask(core.add("c", 1))
        second, _ = self.ask(core.add("c", 2))
        self.assertEqual(line, {"add": {"counter": "c", "by": 1, "id": first.id}})
        self.hear({"event": "reply", "op": "add", "id": second.id, "value": 3, "version": 1},
                  {"event": "reply", "op": "add", "id": first.id, "value": 1, "version": 2})
        self.assertEqual((first.take(), second.take()), (1, 3))

    def test_an_error_has_its_code_and_whether_it_ran(self):
        asked, _ = self.ask(core.put("m", "k", "v", 7, 0.25))
        self.hear({"event": "reply", "op": "put", "id": asked.id, "version": 8,
                   "error": {"code": "conflict", "reason": "k has version 8", "ran": "no"}})
        with self.assertRaises(Error) as raised:
            asked.take()
        self.assertEqual((raised.exception.code, raised.exception.ran, raised.exception.version), ("conflict", "no", 8))

    def test_an_error_line_in_place_of_a_reply_is_the_answer(self):
        asked, line = self.ask(core.take_ids(-1))
        self.hear({"event": "error", "reason": "no", "request": line})
        self.assertRaises(Error, asked.take)

    def test_questions_without_an_id_are_answered_in_their_order(self):
        first, _ = self.ask(core.why("a"))
        second, line = self.ask(core.why("b"))
        self.assertEqual(line, {"why": {"node": "b"}})
        self.hear({"event": "why", "node": "a", "facts": ["joined"]}, {"event": "error", "reason": "no", "request": line})
        self.assertEqual(first.take(), ("joined",))
        self.assertRaises(Error, second.take)

    def test_questions_that_were_written_in_another_order_have_their_own_answers(self):
        first, _ = self.ask(core.why("a"))
        second, _ = self.ask(core.why("b"))
        self.hear({"event": "why", "node": "b", "facts": ["left"]}, {"event": "why", "node": "a", "facts": ["joined"]})
        self.assertEqual((first.take(), second.take()), (("joined",), ("left",)))

    def test_a_group_that_nobody_waits_for_any_more_holds_nothing_up_and_is_left(self):
        asked, _ = self.ask(self.core.join("g", "me"))
        self.core.abandon(asked)
        self.hear({"event": "reply", "op": "join", "id": asked.id}, *(self.message(number) for number in range(100)))
        self.assertFalse(self.core.held_up())
        self.assertEqual([json.loads(line) for line in self.core.outgoing],
                         [{"cancel": {"of": asked.id}}, {"leave": {"group": "g"}}])
        with self.assertRaisesRegex(Error, "still leaving g"):
            self.core.join("g", "me")
        self.hear({"event": "group_left", "group": "g"})
        self.joined()

    def test_what_nobody_serves_any_more_is_answered_with_an_error(self):
        asked, _ = self.ask(self.core.serve(None, "flush"))
        self.core.abandon(asked)
        self.hear({"event": "reply", "op": "serve_command", "id": asked.id},
                  {"event": "command", "request": 3, "verb": "flush", "from": "b", "args": {}, "within_ms": 1000})
        self.assertEqual(json.loads(self.core.outgoing[-1]),
                         {"answer": {"request": 3, "error": "its program does not serve it any more"}})

    def test_a_handler_that_ended_for_good_leaves_nobody_waiting(self):
        asked, _ = self.ask(self.core.serve("g", "v"))
        request = {"event": "request", "group": "g", "verb": "v", "from": "b", "payload": "x", "within_ms": 1000}
        self.hear({"event": "reply", "op": "serve", "id": asked.id}, *({**request, "request": of} for of in (1, 2, 3)))
        stream = asked.take()
        self.core.stop_serving(stream, stream.take("me"))
        self.hear({**request, "request": 4})
        self.assertEqual([json.loads(line)["answer"] for line in self.core.outgoing],
                         [{"request": of, "error": core.NOT_SERVED} for of in (1, 2, 3, 4)])
        self.assertFalse(stream.events)

    def test_a_group_that_is_left_already_is_not_left_again(self):
        with self.assertRaisesRegex(Error, "not in g any more") as raised:
            self.core.leave("g")
        self.assertEqual(raised.exception.code, "not_held")

    def test_a_command_is_asked_and_its_replies_are_by_nodes(self):
        asked, line = self.ask(core.command("cache.flush", {"key": "/tea", "depth": 2}, ["b", "c"], "udp", True, 2))
        self.assertEqual(line, {"command": {"verb": "cache.flush", "args": {"key": "/tea", "depth": 2},
                                            "to": ["b", "c"], "by": "udp", "within": "2000ms", "id": asked.id}})
        self.hear({"event": "reply", "op": "command", "id": asked.id, "replies": {"b": "done"},
                   "failures": {"c": {"code": "unavailable", "reason": "no member", "ran": "no"}}})
        self.assertEqual((asked.take().replies, asked.take().failures["c"].ran), ({"b": b"done"}, "no"))
        handed, line = self.ask(core.command("cache.flush", None, "all", None, False, None))
        self.assertEqual(line, {"command": {"verb": "cache.flush", "to": "all", "reply": False, "id": handed.id}})
        self.hear({"event": "reply", "op": "command", "id": handed.id})
        self.assertEqual(handed.take().replies, {})

    def test_a_line_may_come_in_pieces(self):
        stream = self.joined()
        text = json.dumps(self.message(1, "grüße")).encode() + b"\n"
        for byte in text:
            self.core.push(bytes([byte]))
            self.core.step()
        self.assertEqual(self.take_all(stream)[0].text, "grüße")

    def test_a_group_is_told_in_one_stream_until_it_is_over(self):
        stream = self.joined()
        self.hear({"event": "view", "group": "g", "id": "1.1", "members": ["a/x"], "joined": ["a/x"], "left": [],
                   "crashed": [], "transitional": [], "primary": True}, self.message(1, {"base64": "/wD+"}),
                  {"event": "refused", "group": "g", "reason": "no", "fatal": False,
                   "request": {"send": {"group": "g", "payload": "p"}}},
                  {"event": "lost", "what": "group", "name": "g", "cause": "slow: why"}, self.message(2))
        view, message, refused, lost = self.take_all(stream)
        self.assertEqual(view, View("g", "1.1", ("a/x",), ("a/x",)))
        self.assertEqual(message, Message("g", "1.1", "a/y", 1, b"\xff\0\xfe"))
        self.assertEqual((refused, lost), (Refused("g", "no", b"p"), Lost("g", "slow: why")))
        self.assertRaises(StopIteration, stream.take, "me")
        with self.assertRaises(Error):
            self.core.send("g", "x", False)
        self.joined()  # again

    def test_a_bundle_is_told_as_messages_with_their_parts(self):
        stream = self.joined()
        payloads = ["one", {"base64": "/wD+"}, "", "gr\u00fc\u00dfe"]
        self.hear({"event": "bundle", "group": "g", "view": "1.1", "sender": "a/y", "seq": 7, "safe": True,
                   "payloads": payloads}, self.message(8), {**self.message(9, "z"), "part": 3})
        told = [b"one", b"\xff\0\xfe", b"", "gr\u00fc\u00dfe".encode()]
        self.assertEqual(self.take_all(stream), [
            *(Message("g", "1.1", "a/y", 7, payload, True, part) for part, payload in enumerate(told)),
            Message("g", "1.1", "a/y", 8, b"x"), Message("g", "1.1", "a/y", 9, b"z", part=3)])
        self.assertEqual(stream.size, 0)

    def test_a_bundle_holds_up_the_reading_until_its_last_message_is_taken(self):
        stream = self.joined()
        self.hear({"event": "bundle", "group": "g", "view": "1.1", "sender": "a/y", "seq": 7, "payloads": ["x"] * 100},
                  self.message(8))
        for part in range(100):
            self.assertTrue(self.core.held_up())
            self.assertEqual(stream.take("me").part, part)
        self.assertFalse(self.core.held_up())
        self.hear()
        self.assertEqual(stream.take("me").seq, 8)

    def test_several_payloads_are_said_in_one_line_and_refused_one_by_one(self):
        stream = self.joined()
        ask = self.core.send_bundle("g", ["one", b"\xff\0\xfe", ""], True)
        asked, line = self.ask(ask)
        self.assertEqual(line, {"send_bundle": {"group": "g", "payloads": ["one", {"base64": "/wD+"}, ""], "safe": True,
                                                "id": asked.id}})
        self.hear({"event": "refused", "group": "g", "reason": "no", "fatal": False,
                   "request": json.loads(core.line(ask.op, ask.fields))})
        self.assertEqual(self.take_all(stream), [Refused("g", "no", said) for said in (b"one", b"\xff\0\xfe", b"")])
        with self.assertRaisesRegex(Error, "one payload at least"):
            self.core.send_bundle("g", [], False)

    def test_a_group_that_is_left_drops_what_is_unread(self):
        stream = self.joined()
        self.hear(self.message(1))
        self.ask(self.core.leave("g"))
        self.hear(self.message(2), {"event": "group_left", "group": "g"})
        self.assertRaises(StopIteration, stream.take, "me")
        self.assertNotIn("g", self.core.groups)

    def test_a_loss_right_behind_the_grant_is_told(self):
        asked, _ = self.ask(self.core.lock("x", timedelta(seconds=5)))
        self.hear({"event": "reply", "op": "lock", "id": asked.id, "token": 1 << 63},
                  {"event": "lost", "what": "lock", "name": "x", "token": 1 << 63, "id": asked.id, "cause": "lease"})
        _, token, lost = asked.take()
        self.assertEqual((token, lost.is_set(), lost.cause), (1 << 63, True, "lease"))
        self.assertFalse(self.core.holds(asked.id))

    def test_a_lock_is_not_held_after_unlock_and_a_job_is_led_until_it_is_handed_over(self):
        def give_back(op, id, name, to):
            asked, _ = self.ask(self.core.give_back(op, id, name, 7, to))
            self.hear({"event": "reply", "op": op, "id": asked.id,
                       "error": {"code": "unavailable", "reason": "no majority", "ran": "maybe"}})
            self.assertRaisesRegex(Error, "unavailable", asked.take)
            return self.core.holds(id)
        lock, _ = self.ask(self.core.lock("x", None))
        lead, _ = self.ask(self.core.lead("job"))
        self.hear(*({"event": "reply", "op": asked.ask.op, "id": asked.id, "token": 7} for asked in (lock, lead)))
        self.assertFalse(give_back("unlock", lock.id, "x", None))
        self.assertTrue(give_back("resign", lead.id, "job", "b"))
        self.assertFalse(give_back("resign", lead.id, "job", None))

    def test_a_lock_that_nobody_waits_for_any_more_is_given_back(self):
        asked, _ = self.ask(self.core.lock("x", None))
        self.core.abandon(asked)
        self.hear({"event": "reply", "op": "lock", "id": asked.id, "token": 7})
        self.assertEqual([json.loads(line) for line in self.core.outgoing],
                         [{"cancel": {"of": asked.id}}, {"unlock": {"name": "x", "token": 7}}])
        self.assertEqual(self.core.held, {})

    def test_a_full_stream_stops_the_reading_and_taking_from_it_goes_on(self):
        stream, woken = self.joined(), []
        self.core.gate.wakers.append(lambda: woken.append(True))
        self.hear(*(self.message(number) for number in range(100)))
        few = len(stream.events)
        self.assertLess(few, 10)
        self.assertTrue(self.core.held_up())
        stream.take("me")
        self.assertTrue(woken)
        seen = 1 + len(self.take_all(stream))
        while self.core.step() or stream.events:
            seen += len(self.take_all(stream))
        self.assertEqual(seen, 100)

    def test_a_reply_behind_a_full_stream_is_reached_when_its_reader_waits_for_it(self):
        self.joined(who="me")
        asked, _ = self.ask(core.add("c", 1))
        reply = {"event": "reply", "op": "add", "id": asked.id, "value": 1, "version": 1}
        self.hear(*(self.message(number) for number in range(100)), reply)
        self.assertFalse(asked.done)
        self.core.begin_wait("another")
        self.hear()
        self.assertFalse(asked.done, "the reader of the group comes to read it")
        self.core.begin_wait("me")
        self.hear()
        self.assertEqual(asked.take(), 1)
        self.core.end_wait("me")
        self.assertTrue(self.core.held_up())

    def test_a_full_stream_that_is_over_holds_nothing_up(self):
        stream = self.joined(who="me")
        self.core.begin_wait("me")
        self.hear(*(self.message(number) for number in range(100)),
                  {"event": "lost", "what": "group", "name": "g", "cause": "it was removed"})
        asked, _ = self.ask(core.add("c", 1))
        self.core.end_wait("me")
        self.assertFalse(self.core.held_up())
        self.hear({"event": "reply", "op": "add", "id": asked.id, "value": 1, "version": 1})
        self.assertEqual((asked.take(), len(self.take_all(stream))), (1, 101))

    def test_a_name_that_cannot_be_said_is_neither_joined_nor_served(self):
        self.core = core.Core(LostEvent, link=Link(5))
        for name in (b"chat", "a\ud800", "x" * (4 << 20)):
            for ask in (lambda: self.core.join(name, "me"), lambda: self.core.serve(name, "v")):
                self.assertRaises((Error, TypeError), lambda: self.core.ask(ask()))
        self.assertEqual((self.core.groups, self.core.served), ({}, {}))
        welcome = {"client": "x", "node": "a", "cluster": "s", "build": "1", "resume": "K"}
        self.core.come_back(json.dumps({"event": "reply", "welcome": welcome}).encode(), "it broke")

    def test_a_verb_whose_server_has_ended_is_served_again(self):
        asked, _ = self.ask(self.core.serve("g", "v"))
        self.core.abandon(asked)
        again, _ = self.ask(self.core.serve("g", "v"))
        self.hear({"event": "reply", "op": "serve", "id": again.id})
        self.assertIs(again.take(), self.core.served["g", "v"])
        with self.assertRaisesRegex(Error, "already"):
            self.core.serve("g", "v")

    def test_a_refused_message_that_does_not_come_back_has_no_payload(self):
        stream = self.joined()
        for said in ({"send": {"group": "g"}}, {"send_bundle": {"group": "g"}}, {"send": {}}):
            self.hear({"event": "refused", "group": "g", "reason": "no", "fatal": False, "request": said})
        self.assertEqual(self.take_all(stream), [Refused("g", "no", None)] * 3)

    def test_a_reader_that_waits_while_too_much_comes_is_out_of_the_group(self):
        with mock.patch.object(core, "MOST_BYTES", 10_000):
            stream = self.joined()
            asked, _ = self.ask(core.add("c", 1))
            self.core.begin_wait("me")
            self.hear(*(self.message(number) for number in range(100)),
                      {"event": "reply", "op": "add", "id": asked.id, "value": 1, "version": 1})
            self.assertEqual(asked.take(), 1)
        self.assertLess(stream.size, 12_000)
        self.assertEqual(json.loads(self.core.outgoing[0]), {"leave": {"group": "g"}})
        self.assertIsInstance(self.take_all(stream)[-1], Lost)
        self.assertRaises(StopIteration, stream.take, "me")

    def test_too_many_requests_are_answered_with_an_error(self):
        asked, _ = self.ask(self.core.serve("g", "v"))
        self.hear({"event": "reply", "op": "serve", "id": asked.id})
        with mock.patch.object(core, "MOST_BYTES", 0):
            for number in (1, 2):
                self.hear({"event": "request", "group": "g", "request": number, "verb": "v", "from": "b",
                           "payload": "?", "within_ms": 1500})
        self.assertEqual(asked.take().take(None).within, 1.5)
        self.assertEqual(json.loads(self.core.outgoing[0])["answer"]["request"], 2)

    def test_a_watch_begins_with_what_is_there_and_may_be_lost(self):
        asked, _ = self.ask(self.core.watch("m", None, "u/", "me"))
        self.hear({"event": "reply", "op": "watch", "id": asked.id},
                  {"event": "watching", "map": "m", "id": asked.id, "entries": 1},
                  {"event": "changed", "map": "m", "id": asked.id, "key": "u/1", "value": "v", "version": 7},
                  {"event": "lost", "what": "watch", "name": "m", "id": asked.id, "cause": "no majority"})
        stream, id = asked.take()
        watching, changed = self.take_all(stream)
        self.assertEqual((watching, changed.value, changed.gone), (Watching(1), b"v", None))
        with self.assertRaises(Error) as raised:
            stream.take("me")
        self.assertEqual(raised.exception.code, "lost")
        self.assertEqual(self.core.unwatch(id), b"")

    def test_a_lost_connection_is_told_to_all_that_wait(self):
        stream = self.joined()
        held, _ = self.ask(self.core.lock("x", None))
        self.hear({"event": "reply", "op": "lock", "id": held.id, "token": 7}, self.message(1),
                  {"event": "refused", "group": None, "reason": "8192 programs are served", "fatal": True})
        asked, _ = self.ask(core.add("c", 1))
        self.core.lose("the agent closed the connection")
        with self.assertRaises(ConnectionLost) as raised:
            asked.take()
        self.assertEqual((raised.exception.cause, raised.exception.ran), ("8192 programs are served", "maybe"))
        self.assertEqual(held.take()[2].cause, "8192 programs are served")
        self.assertIsInstance(stream.take("me"), Message)
        self.assertRaises(ConnectionLost, stream.take, "me")
        with self.assertRaises(ConnectionLost) as raised:
            self.core.ask(core.add("c", 1))
        self.assertEqual(raised.exception.ran, "no")

    def test_no_payload_makes_a_line_that_is_too_long(self):
        for payload in (b"\x01" * 1048570, "\x01" * 1048570, "ä" * 524285, b"\xff" * 1048570, ""):
            line = core.line("send", {"group": "g", "payload": core.encode(payload)})
            self.assertLess(len(line), 4 << 20)
            data = payload.encode() if isinstance(payload, str) else payload
            self.assertEqual(core.decode(json.loads(line)["send"]["payload"]), data)

    def test_no_bundle_within_its_bounds_makes_a_line_that_is_too_long(self):
        self.joined()
        for payloads in ([bytes(253)] * 4096, ["\0" * 253] * 4096, [bytes(122)] * 4095 + [bytes(540_000)]):
            _, line = self.core.ask(self.core.send_bundle("g", payloads, True))
            self.assertLess(len(line), 4 << 20)
            said = [core.decode(one) for one in json.loads(line)["send_bundle"]["payloads"]]
            self.assertEqual(said, [bytes(len(payload)) for payload in payloads])

    def test_what_the_agent_would_not_take_is_refused_here(self):
        with self.assertRaises(Error) as refused:
            self.core.ask(core.put("m", "k", b"\xff" * (4 << 20), None, None))
        self.assertEqual((refused.exception.code, refused.exception.ran), ("refused", "no"))
        self.assertEqual(self.core._asked, {})
        self.assertIn("60000 bytes", core.answer(mock.Mock(number=7), b"x" * 60_000)["error"])
        self.assertNotIn("error", core.answer(Command("v", "b", {}, 1.0, 7), b"x" * 60_000))

    def test_what_gives_up_before_there_is_room_is_never_said(self):
        self.core = core.Core(LostEvent, link=Link(5))
        full, _ = self.core.ask(core.add("x" * KEEP_BYTES, 1))
        last, _ = self.core.ask(core.add("c", 1))
        for asked in [self.core.ask(ask)[0] for ask in (self.core.lock("till", None), self.core.join("g", "me"),
                                                        core.why("b"))]:
            self.core.abandon(asked)
        told, _ = self.core.tell(b"told\n")
        self.core.abandon(told)
        self.assertEqual((self.core.groups, len(self.core.link.unsent)), ({}, 1))
        self.core.link.next()
        self.hear({"event": "took", "lines": 1})
        self.assertEqual(json.loads(self.core.link.next()), {"add": {"counter": "c", "by": 1, "id": last.id}})
        self.assertEqual([*self.core._asked], [full.id, last.id])

    def test_what_waits_for_room_was_not_done_when_the_client_is_a_new_one(self):
        self.core = core.Core(LostEvent, link=Link(5))
        self.core.ask(core.add("x" * KEEP_BYTES, 1))
        self.core.link.next()
        join = self.core.join("g", "me")
        waits = [self.core.ask(core.add("c", 1))[0], self.core.tell(b"told\n")[0], self.core.ask(join)[0]]
        welcome = {"client": "x", "node": "a", "cluster": "s", "build": "1", "resume": "K"}
        self.core.come_back(json.dumps({"event": "reply", "welcome": welcome}).encode(), "it broke")
        self.assertEqual([(one.done, one.error.code, one.error.ran) for one in waits], [(True, "connection", "no")] * 3)
        self.assertEqual((self.core.groups, self.core.link.next()), ({}, b""))
        self.core.ask(core.add("c", 1))
        self.assertEqual(json.loads(self.core.link.next())["add"]["counter"], "c")

    def test_a_full_group_of_a_new_client_is_left_behind_its_join(self):
        self.core = core.Core(LostEvent, link=Link(5))
        asked, _ = self.core.ask(self.core.join("g", "me"))
        self.core.link.next()
        welcome = {"client": "x", "node": "a", "cluster": "s", "build": "1", "resume": "K"}
        with mock.patch.object(core, "MOST_BYTES", 1000):
            self.hear({"event": "reply", "op": "join", "id": asked.id}, self.message(1), self.message(2))
            self.core.come_back(json.dumps({"event": "reply", "welcome": welcome}).encode(), "it broke")
        again, leave = map(json.loads, self.core.link.next().splitlines())
        self.assertEqual((again["join"]["group"], leave), ("g", {"leave": {"group": "g"}}))
        self.assertEqual([type(event) for event in self.take_all(asked.take())], [Message, Message, Lost])
        self.hear({"event": "reply", "op": "join", "id": again["join"]["id"]}, {"event": "group_left", "group": "g"})
        self.assertEqual(self.core.groups, {})

    def test_a_client_that_closes_or_is_lost_reads_to_the_end(self):
        for end in (lambda: self.core.begin_close(), lambda: self.core.lose("it broke")):
            self.core = core.Core(LostEvent, buffer_bytes=3000)
            asked, _ = self.ask(self.core.watch("m", "k", None, "me"))
            served, _ = self.ask(self.core.serve("g", "v"))
            changed = {"event": "changed", "map": "m", "id": asked.id, "key": "k", "value": "v" * 1000, "version": 1}
            self.hear({"event": "reply", "op": "watch", "id": asked.id},
                      {"event": "reply", "op": "serve", "id": served.id}, *[changed] * 100)
            stream, _ = asked.take()
            self.assertTrue(self.core.held_up())
            self.assertIsInstance(stream.take("me"), Changed)
            end()
            self.assertFalse(self.core.held_up())
            request = {"event": "request", "group": "g", "request": 1, "verb": "v", "from": "b", "payload": "x" * 1000,
                       "within_ms": 1000}
            self.hear(*[request] * 10)
            self.assertEqual(self.core._bytes, b"")
            self.assertFalse(self.core.served["g", "v"].events)
            if self.core.closing:  # what is behind the leave is of no use
                self.assertEqual(self.core.outgoing, [])

    def test_durations_and_addresses_are_written_as_the_agent_reads_them(self):
        self.assertEqual([core.span(of) for of in (0, 0.0001, 2, timedelta(minutes=1))], ["0ms", "1ms", "2000ms", "60000ms"])
        self.assertEqual(address.address("unix:/run/a.sock"), "/run/a.sock")
        self.assertEqual(address.address("[::1]:7480"), ("::1", 7480))
        self.assertRaises(ValueError, address.address, "localhost")

    def test_events_of_a_newer_agent_are_passed_over(self):
        self.hear({"event": "something new", "group": "g"})

    def test_every_event_of_the_golden_file_is_taken(self):
        golden = Path(__file__).parents[3] / "crates/antiphon-api/golden/events.txt"
        if not golden.exists():
            self.skipTest("not in the repository")
        for group in ("g", "chat"):
            self.joined(group, threading.get_ident())
        self.core.begin_wait(threading.get_ident())
        lines = (line for line in golden.read_text().splitlines() if line.startswith("{"))
        # A client is told no payload in a file.
        self.hear(*(json.loads(line) for line in lines if '"file"' not in line))
        self.assertIsNone(self.core.cause)


if __name__ == "__main__":
    unittest.main()
